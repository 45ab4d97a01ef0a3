//! `cargo xtask package`: a Debian package of the release build, and the test that installs it into a root of its own, upgrades it under programs that
//! run, removes and purges it.
//!
//! ```text
//!   target/package/root/usr/{bin,lib,share}, etc/   ── dpkg-deb ──> target/package/netchannel_VERSION_ARCHITECTURE.deb
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::install;
use crate::workspace::{Workspace, find_program, is_root};

/// The directories where Debian's shells look for completions, below `/usr`.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/netchannel"),
    ("zsh", "share/zsh/vendor-completions/_netchannel"),
    ("fish", "share/fish/vendor_completions.d/netchannel.fish"),
];

/// Files that an administrator may change; an upgrade keeps them.
const CONFIGURATION: [&str; 2] = ["/etc/default/netchannel", "/etc/netchannel/netchannel.toml"];

/// The exit code of a step that could not be tried.
const SKIPPED: i32 = 77;

/// Makes the package; its path is printed.
pub fn run(workspace: &Workspace) -> Result<bool> {
    ensure!(
        find_program("dpkg-deb").is_some(),
        "dpkg-deb is not installed (Debian's package dpkg)"
    );
    if !install::build(workspace)? {
        return Ok(false);
    }
    let package = make(workspace, env!("CARGO_PKG_VERSION"))?;
    println!("{}", package.display());
    Ok(true)
}

/// A package of a version, from the existing release build.
fn make(workspace: &Workspace, version: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("package");
    let root = folder.join("root");
    let _ = fs::remove_dir_all(&root);
    let usr = root.join("usr");
    install::files(workspace, &usr)?;
    for (shell, path) in COMPLETIONS {
        install::install_completion(workspace, shell, &usr.join(path))?;
    }
    for name in install::UNITS {
        let unit = fs::read_to_string(workspace.root.join("dist").join(name))?;
        write(
            &usr.join("lib/systemd/system").join(name),
            &install::unit_for(&unit, Path::new("/usr"))?,
        )?;
    }
    let documents = usr.join("share/doc/netchannel");
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "SPECIFICATION.md",
        "CONTRIBUTING.md",
    ] {
        install::place(&workspace.root.join(name), &documents.join(name), 0o644)?;
    }
    for entry in fs::read_dir(workspace.root.join("docs"))?.flatten() {
        if entry.path().is_file() {
            install::place(
                &entry.path(),
                &documents.join("docs").join(entry.file_name()),
                0o644,
            )?;
        }
    }
    install::place(
        &workspace.root.join("LICENSE"),
        &documents.join("copyright"),
        0o644,
    )?;
    install::place(
        &workspace.root.join("dist/grafana.json"),
        &usr.join("share/netchannel/grafana.json"),
        0o644,
    )?;
    install::place(
        &workspace.root.join("dist/default"),
        &root.join("etc/default/netchannel"),
        0o644,
    )?;
    write(
        &root.join("etc/netchannel/netchannel.toml"),
        &commented(&workspace.root)?,
    )?;
    control(&root, version)?;
    let package = folder.join(format!("netchannel_{version}_{}.deb", architecture()?));
    let built = Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zgzip", "--build"])
        .arg(&root)
        .arg(&package)
        .stdout(Stdio::null())
        .status()?;
    ensure!(built.success(), "dpkg-deb failed");
    Ok(package)
}

fn write(path: &Path, text: &str) -> Result<()> {
    install::make_folder_of(path)?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(fs::set_permissions(
        path,
        fs::Permissions::from_mode(0o644),
    )?)
}

/// The example of a configuration with all lines commented out.
fn commented(workspace: &Path) -> Result<String> {
    let example = fs::read_to_string(workspace.join("crates/configuration/example.toml"))?;
    let lines = example.lines().map(|line| match line {
        "" => "\n".to_owned(),
        line if line.starts_with('#') => format!("{line}\n"),
        line => format!("# {line}\n"),
    });
    Ok(lines.collect())
}

fn architecture() -> Result<String> {
    let output = Command::new("dpkg")
        .arg("--print-architecture")
        .output()
        .context("cannot run dpkg")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// The control files of dpkg: the fields, the list of configuration files, and the scripts.
fn control(root: &Path, version: &str) -> Result<()> {
    let folder = root.join("DEBIAN");
    let fields = format!(
        "Package: netchannel\nVersion: {version}\nArchitecture: {}\nMaintainer: NetChannel <netchannel@localhost>\nSection: net\n\
         Priority: optional\nDepends: libc6 (>= 2.34), libgcc-s1\nSuggests: iproute2, openssl\n\
         Description: host network stack for unmodified programs\n \
         TCP connections between programs go memory to memory within a host, and over\n \
         shared, scheduled channels between hosts; everything else stays kernel TCP.\n",
        architecture()?
    );
    write(&folder.join("control"), &fields)?;
    write(
        &folder.join("conffiles"),
        &(CONFIGURATION.join("\n") + "\n"),
    )?;
    // DPKG_ROOT is set where the files are below another root: there is no systemd to talk to then.
    let reload = "#!/bin/sh\nset -e\nif [ -z \"$DPKG_ROOT\" ] && [ -d /run/systemd/system ]; then\n    systemctl daemon-reload || true\nfi\n";
    let purge = "if [ \"$1\" = purge ]; then\n    rmdir \"$DPKG_ROOT/etc/netchannel\" 2>/dev/null || true\nfi\n";
    for (name, text) in [
        ("postinst", reload.to_owned()),
        ("postrm", reload.to_owned() + purge),
    ] {
        let path = folder.join(name);
        write(&path, &text)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// A root of its own, and dpkg below it: this machine's packages are not touched.
struct Installed {
    root: PathBuf,
}

impl Installed {
    fn make(place: &Path) -> Result<Self> {
        let root = place.join("root");
        for folder in [
            "var/lib/dpkg/info",
            "var/lib/dpkg/updates",
            "var/lib/dpkg/triggers",
            "etc",
            "usr",
        ] {
            fs::create_dir_all(root.join(folder))?;
        }
        fs::write(root.join("var/lib/dpkg/status"), "")?;
        Ok(Self { root })
    }

    fn dpkg(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("dpkg")
            .arg(format!("--root={}", self.root.display()))
            .args([
                "--force-script-chrootless",
                "--force-depends",
                "--force-confold",
                "--log=/dev/null",
            ])
            .args(words)
            .output()?;
        ensure!(
            output.status.success(),
            "dpkg {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name.trim_start_matches('/'))
    }

    fn netchannel(&self, socket: &Path, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("usr/bin/netchannel"));
        let (name, rest) = words.split_first().unwrap_or((&"status", &[]));
        command
            .arg(name)
            .arg("--socket")
            .arg(socket)
            .args(rest)
            .stdin(Stdio::null());
        command
    }
}

/// A child that does not outlive the test.
struct Running(Child);

impl Running {
    fn is_there(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a package does what it should, from the release build. Exit code 77 where this machine cannot try.
pub fn test(workspace: &Workspace) -> Result<bool> {
    if find_program("dpkg-deb").is_none() || !is_root() {
        println!("skipped: only root can install packages, and only where dpkg is");
        std::process::exit(SKIPPED);
    }
    let place = std::env::temp_dir().join(format!("netchannel-package-{}", std::process::id()));
    fs::create_dir_all(&place)?;
    let outcome = installed_upgraded_removed(workspace, &place);
    fs::remove_dir_all(&place)?;
    outcome.map(|()| true)
}

fn installed_upgraded_removed(workspace: &Workspace, place: &Path) -> Result<()> {
    let [old, new] = ["0.0.1", "0.0.2"].map(|version| {
        let made = make(workspace, version)?;
        let copy = place.join(format!("{version}.deb"));
        fs::rename(made, &copy)?;
        Ok::<_, anyhow::Error>(copy.display().to_string())
    });
    let (old, new) = (old?, new?);
    let host = Installed::make(place)?;
    host.dpkg(&["--install", &old])?;
    for name in [
        "usr/bin/netchannel",
        "usr/lib/netchannel/libnetchannel.so",
        "usr/lib/netchannel/netchannel-supervisor",
        "usr/lib/systemd/system/netchannel.service",
        "usr/lib/systemd/system/netchannel-stack@.service",
    ] {
        ensure!(host.path(name).is_file(), "{name} is missing");
    }
    for name in CONFIGURATION {
        ensure!(host.path(name).is_file(), "{name} is missing");
    }
    let socket = place.join("daemon.sock");
    let mut daemon = Running(
        host.netchannel(&socket, &["daemon", "--log", "/dev/null"])
            .spawn()?,
    );
    until("the daemon serves", || {
        host.netchannel(&socket, &["status"])
            .output()
            .is_ok_and(|output| output.status.success())
    })?;
    let mut program = Running(
        host.netchannel(&socket, &["run", "--require", "--", "sleep", "60"])
            .spawn()?,
    );
    let maps = format!("/proc/{}/maps", program.0.id());
    until("the program has the library", || {
        fs::read_to_string(&maps).is_ok_and(|maps| maps.contains("libnetchannel.so"))
    })?;

    // Changed files stay, and running processes go on.
    let options = host.path(CONFIGURATION[0]);
    fs::write(&options, "NETCHANNEL_OPTIONS=\"--log-level debug\"\n")?;
    host.dpkg(&["--install", &new])?;
    ensure!(
        fs::read_to_string(&options)?.contains("debug"),
        "an upgrade has changed the configuration"
    );
    ensure!(
        daemon.is_there() && program.is_there(),
        "an upgrade has ended what ran"
    );
    let text = fs::read_to_string(&maps)?;
    ensure!(
        text.contains("libnetchannel.so (deleted)"),
        "the program keeps the library that it has"
    );
    let second = host
        .netchannel(&socket, &["run", "--require", "--", "true"])
        .status()?;
    ensure!(second.success(), "after an upgrade no program attaches");

    host.dpkg(&["--remove", "netchannel"])?;
    ensure!(
        !host.path("usr/bin/netchannel").exists(),
        "the program is still there"
    );
    ensure!(
        !host.path("usr/lib/netchannel").exists(),
        "the library is still there"
    );
    ensure!(options.is_file(), "removing takes the configuration");
    ensure!(
        daemon.is_there() && program.is_there(),
        "removing ends what runs"
    );

    host.dpkg(&["--purge", "netchannel"])?;
    for name in ["etc/default/netchannel", "etc/netchannel"] {
        ensure!(!host.path(name).exists(), "{name} is still there");
    }
    println!("installed, upgraded under a daemon and a program, removed, purged");
    Ok(())
}

fn until(what: &str, condition: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !condition() {
        if start.elapsed() > Duration::from_secs(10) {
            bail!("it never came: {what}");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_configuration_says_nothing() {
        let workspace = Workspace::find().unwrap();
        let text = commented(&workspace.root).unwrap();
        assert!(text.contains("# listen ="));
        assert!(
            text.lines()
                .all(|line| line.is_empty() || line.starts_with('#'))
        );
    }
}
