//! Which places are believed. The owners need root; the permissions do not.

use netchannel_trust::{Distrust, Ownership, peer, place};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

const STRANGER: u32 = 61_002;

struct Place {
    folder: tempfile::TempDir,
    listener: UnixListener,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("in")).unwrap();
        let listener = UnixListener::bind(folder.path().join("in/s.sock")).unwrap();
        let place = Self { folder, listener };
        place.mode("in", 0o700);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), PermissionsExt::from_mode(mode)).unwrap();
    }

    fn judged(&self) -> Result<Ownership, Distrust> {
        place::socket(&self.path("in/s.sock"))
    }
}

fn is_root() -> bool {
    let root = netchannel_trust::Owners::now().own == 0;
    if !root {
        println!("skipped: files of another user need root");
    }
    root
}

#[test]
fn a_place_of_ours_is_believed_and_so_is_who_listens_there() {
    let place = Place::new();
    assert_eq!(place.judged(), Ok(Ownership::Trusted));
    let stream = UnixStream::connect(place.path("in/s.sock")).unwrap();
    assert_eq!(peer::judge(stream.as_raw_fd(), Ownership::Trusted), Ok(()));
    assert!(place.listener.local_addr().is_ok());
    let dotted = place.path(".//in/../in/./s.sock");
    assert_eq!(place::socket(&dotted), Ok(Ownership::Trusted));
}

#[test]
fn a_folder_that_others_may_write_is_not() {
    let place = Place::new();
    for mode in [0o777, 0o770, 0o702] {
        place.mode("in", mode);
        let refused = place.judged().unwrap_err();
        let path = place.path("in");
        assert!(
            matches!(&refused, Distrust::Writable { path: found, .. } if *found == path),
            "{refused}"
        );
        assert!(place::folder(&path).is_err());
    }
    // As in /tmp, nobody can replace what is another's.
    place.mode("in", 0o1777);
    assert_eq!(place.judged(), Ok(Ownership::Trusted));
    // A folder further up counts as well.
    place.mode("in", 0o700);
    std::fs::set_permissions(place.folder.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(matches!(place.judged(), Err(Distrust::Writable { .. })));
}

#[test]
fn nothing_there_is_said_apart_from_something_else_there() {
    let place = Place::new();
    let absent = place::socket(&place.path("in/none.sock")).unwrap_err();
    assert!(absent.is_absent(), "{absent}");
    let absent = place::socket(&place.path("none/s.sock")).unwrap_err();
    assert!(absent.is_absent(), "{absent}");
    std::fs::write(place.path("in/file"), "").unwrap();
    let file = place.path("in/file");
    assert_eq!(place::socket(&file), Err(Distrust::NoSocket(file.clone())));
    assert_eq!(place::folder(&file), Err(Distrust::NoFolder(file.clone())));
    let below = place::socket(&file.join("s.sock"));
    assert_eq!(below, Err(Distrust::NoFolder(file)));
}

#[test]
fn links_lead_to_what_is_judged() {
    let place = Place::new();
    symlink("in", place.path("link")).unwrap();
    symlink(place.path("link/s.sock"), place.path("far")).unwrap();
    assert_eq!(place::socket(&place.path("far")), Ok(Ownership::Trusted));
    place.mode("in", 0o777);
    assert!(matches!(
        place::socket(&place.path("far")),
        Err(Distrust::Writable { .. })
    ));
    symlink("round", place.path("round")).unwrap();
    let endless = place::socket(&place.path("round")).unwrap_err();
    assert_eq!(
        endless,
        Distrust::Unreachable(place.path("round"), libc::ELOOP)
    );
}

#[test]
fn relative_paths_begin_where_the_process_is() {
    // No other test of this file looks at relative paths.
    let place = Place::new();
    std::env::set_current_dir(place.folder.path()).unwrap();
    assert_eq!(
        place::socket(Path::new("in/s.sock")),
        Ok(Ownership::Trusted)
    );
    place.mode("in", 0o777);
    assert!(place::socket(Path::new("in/s.sock")).is_err());
}

#[test]
fn what_belongs_to_another_user_is_not_believed() {
    if !is_root() {
        return;
    }
    let stranger = Some(STRANGER);
    let foreign = |judged: Result<Ownership, Distrust>, path: PathBuf| {
        let expected = Distrust::Owner {
            path,
            owner: STRANGER,
            own: 0,
        };
        assert_eq!(judged, Err(expected));
    };
    // The socket itself, in a folder of ours.
    let place = Place::new();
    chown(place.path("in/s.sock"), stranger, None).unwrap();
    foreign(place.judged(), place.path("in/s.sock"));
    // The folder, though the socket is root's.
    let place = Place::new();
    chown(place.path("in"), stranger, None).unwrap();
    foreign(place.judged(), place.path("in"));
    // A link in a place that everybody may write, though it leads to what is ours.
    let place = Place::new();
    place.mode("in", 0o1777);
    symlink("s.sock", place.path("in/link")).unwrap();
    lchown(place.path("in/link"), stranger, None).unwrap();
    foreign(place::socket(&place.path("in/link")), place.path("in/link"));
}
