//! Programs that make containers: the options by which a container is a tenant's, and its programs have a supervisor.

use netchannel_control::path::{LINKER, SOCKET_VARIABLE, SUPERVISOR, library_folder};
use netchannel_supervisor::CONTAINER_FOLDER;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// A program that makes containers.
#[derive(Debug, PartialEq, Eq)]
pub struct Maker {
    name: &'static str,
    /// Names the file that a container's first process is, which then runs the image's program. Docker's daemon has one for all.
    first_process: Option<&'static str>,
}

const MAKERS: [Maker; 3] = [
    Maker {
        name: "podman",
        first_process: Some("--init-path="),
    },
    Maker {
        name: "nerdctl",
        first_process: Some("--init-binary="),
    },
    Maker {
        name: "docker",
        first_process: None,
    },
];

/// By it the supervisor looks into programs that have changed their user, too.
const CAPABILITY: &str = "SYS_PTRACE";

/// What a tenant's containers get.
#[derive(Debug)]
pub struct Place<'a> {
    /// The tenant's folder.
    pub folder: &'a Path,
    /// Where its programs attach.
    pub socket: &'a Path,
    /// The library that they load.
    pub library: &'a Path,
}

/// Who makes a container by this command, and where options go: behind its `run` or `create`. `None` for other commands.
pub fn maker(words: &[OsString]) -> Option<(&'static Maker, usize)> {
    let program = Path::new(words.first()?).file_name()?;
    let maker = MAKERS.iter().find(|maker| program == maker.name)?;
    let makes = |word: &OsString| word == "run" || word == "create";
    Some((maker, words.iter().position(makes)? + 1))
}

/// The options that make a container the tenant's.
pub fn options(place: &Place<'_>, words: &[OsString]) -> Vec<OsString> {
    let mut options = vec![volume(place.folder, place.folder)];
    if !place.library.starts_with(place.folder) {
        options.push(volume(place.library, place.library));
    }
    options.push(joined(&[
        "--env=LD_PRELOAD=".as_ref(),
        place.library.as_os_str(),
    ]));
    options.push(joined(&[
        "--env=".as_ref(),
        SOCKET_VARIABLE.as_ref(),
        "=".as_ref(),
        place.socket.as_os_str(),
    ]));
    let says_network = |word: &OsString| {
        let word = word.as_encoded_bytes();
        word.starts_with(b"--network") || word.starts_with(b"--net")
    };
    if !words.iter().any(says_network) {
        options.push("--network=none".into());
    }
    options
}

/// The options that put a supervisor before the image's program.
///
/// # Errors
/// A sentence why there can be none.
pub fn supervise(
    maker: &Maker,
    place: &Place<'_>,
    words: &[OsString],
) -> Result<Vec<OsString>, String> {
    let folder = library_folder(place.socket);
    let reason = match maker.first_process {
        None => format!(
            "{}'s --init is one file for all containers; name {CONTAINER_FOLDER}/{SUPERVISOR} as the entry point \
             (docs/static.md)",
            maker.name
        ),
        Some(_) if !has_supervisor(&folder) => format!(
            "{} has no {SUPERVISOR}; the daemon's log says why",
            folder.display()
        ),
        Some(option) => {
            let mut options = vec![
                volume(&folder, Path::new(CONTAINER_FOLDER)),
                "--init".into(),
                joined(&[option.as_ref(), folder.join(SUPERVISOR).as_os_str()]),
            ];
            let says = |word: &OsString| word.to_string_lossy().contains(CAPABILITY);
            if !words.iter().any(says) {
                options.push(joined(&["--cap-add=".as_ref(), CAPABILITY.as_ref()]));
            }
            return Ok(options);
        }
    };
    Err(format!(
        "static programs, and those of Go and musl, have no network in this container: {reason}"
    ))
}

fn has_supervisor(folder: &Path) -> bool {
    [SUPERVISOR, LINKER]
        .iter()
        .all(|name| folder.join(name).is_file())
}

fn volume(from: &Path, to: &Path) -> OsString {
    joined(&[
        "--volume=".as_ref(),
        from.as_os_str(),
        ":".as_ref(),
        to.as_os_str(),
        ":ro".as_ref(),
    ])
}

fn joined(parts: &[&OsStr]) -> OsString {
    parts.iter().fold(OsString::new(), |mut all, part| {
        all.push(part);
        all
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    fn texts(words: Vec<OsString>) -> Vec<String> {
        let text = |word: OsString| word.into_string().unwrap();
        words.into_iter().map(text).collect()
    }

    #[test]
    fn options_go_behind_what_makes_the_container() {
        let place = |line| maker(&words(line)).map(|(maker, place)| (maker.name, place));
        assert_eq!(place("podman run -d image"), Some(("podman", 2)));
        let docker = "/usr/bin/docker --log-level warn create image";
        assert_eq!(place(docker), Some(("docker", 4)));
        assert_eq!(place("podman ps"), None);
        assert_eq!(place("unshare -n run"), None);
    }

    #[test]
    fn a_container_gets_the_folder_the_library_and_no_network() {
        let with = |library: &str, line| {
            let place = Place {
                folder: Path::new("/run/t"),
                socket: Path::new("/run/t/nc.sock"),
                library: Path::new(library),
            };
            texts(options(&place, &words(line)))
        };
        let given = |line| with("/usr/lib/l.so", line);
        let placed = with("/run/t/nc.sock.lib/$LIB/l.so", "podman run image");
        assert_eq!(
            (placed.len(), placed[1].as_str()),
            (4, "--env=LD_PRELOAD=/run/t/nc.sock.lib/$LIB/l.so")
        );
        let all = [
            "--volume=/run/t:/run/t:ro",
            "--volume=/usr/lib/l.so:/usr/lib/l.so:ro",
            "--env=LD_PRELOAD=/usr/lib/l.so",
            "--env=NETCHANNEL_SOCKET=/run/t/nc.sock",
            "--network=none",
        ];
        assert_eq!(given("podman run image"), all);
        assert_eq!(given("podman run --network=none image"), all[..4]);
        assert_eq!(given("podman run --net host image"), all[..4]);
    }

    #[test]
    fn a_container_gets_a_supervisor_where_its_maker_takes_one() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("nc.sock");
        let place = Place {
            folder: folder.path(),
            socket: &socket,
            library: Path::new("/l.so"),
        };
        let of = |name: &str| {
            let maker = MAKERS.iter().find(|maker| maker.name == name).unwrap();
            supervise(maker, &place, &words("run image")).map(texts)
        };
        let told = of("podman").unwrap_err();
        assert!(told.contains("has no netchannel-supervisor"), "{told}");
        let files = library_folder(&socket);
        std::fs::create_dir(&files).unwrap();
        for name in [SUPERVISOR, LINKER] {
            std::fs::write(files.join(name), "").unwrap();
        }
        let files = files.display();
        let podman = [
            format!("--volume={files}:/run/.netchannel:ro"),
            "--init".to_owned(),
            format!("--init-path={files}/netchannel-supervisor"),
            "--cap-add=SYS_PTRACE".to_owned(),
        ];
        assert_eq!(of("podman").unwrap(), podman);
        let dropped = words("podman run --cap-drop CAP_SYS_PTRACE image");
        let given = supervise(&MAKERS[0], &place, &dropped).map(texts);
        assert_eq!(given.unwrap(), podman[..3]);
        let nerdctl = of("nerdctl").unwrap();
        assert_eq!(
            nerdctl[2],
            format!("--init-binary={files}/netchannel-supervisor")
        );
        let told = of("docker").unwrap_err();
        assert!(told.contains("one file for all containers"), "{told}");
    }
}
