//! `hosts`: two hosts for a script. The script's environment says how to reach them.
//!
//! ```text
//! hosts [--netchannel PROGRAM] -- COMMAND...
//! ```
//!
//! `HOST_A`, `HOST_B`: their namespaces, for `nsenter --net=`; `ADDRESS_A`, `ADDRESS_B`, `ADDRESS6_A`, `ADDRESS6_B`:
//! their addresses; with a program, `WORDS_A` and `WORDS_B`: files with the arguments, one to a line, with which the
//! daemon of each host knows the other host. Both hosts end with the command, together with all processes on them. Exit
//! status: the command's; 77 where two hosts cannot be made.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;

use netchannel_namespaces::{
    Configuration, Error, Host, Hosts, daemon_arguments, gain_rights, write_key,
};
use netchannel_testkit::support::SKIPPED;

fn main() {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let mut netchannel = None;
    if words.first().is_some_and(|word| word == "--netchannel") && words.len() > 1 {
        netchannel = Some(words.remove(1));
        words.remove(0);
    }
    if words.first().is_none_or(|word| word != "--") || words.len() < 2 {
        eprintln!("usage: hosts [--netchannel PROGRAM] -- COMMAND...");
        std::process::exit(2);
    }
    let status = match run(netchannel.as_deref(), &words[1..]) {
        Ok(status) => status,
        Err(error @ (Error::NotAllowed(_) | Error::NoIproute)) => {
            println!("skipped: {error}");
            SKIPPED
        }
        Err(error) => {
            eprintln!("{error}");
            1
        }
    };
    std::process::exit(status);
}

fn run(netchannel: Option<&str>, words: &[String]) -> Result<i32, Error> {
    gain_rights()?;
    let hosts = Hosts::make()?;
    let failed = |error: std::io::Error| Error::Devices(error.to_string());
    let folder = tempfile::tempdir().map_err(failed)?;
    let mut command = Command::new(&words[0]);
    command.args(&words[1..]);
    for (name, host) in [("A", &hosts.a), ("B", &hosts.b)] {
        command
            .env(format!("HOST_{name}"), host.path())
            .env(format!("ADDRESS_{name}"), host.v4(0).to_string())
            .env(format!("ADDRESS6_{name}"), host.v6(0).to_string());
    }
    if let Some(netchannel) = netchannel {
        let folders = ["a", "b"].map(|name| folder.path().join(name));
        for folder in &folders {
            std::fs::create_dir(folder).map_err(failed)?;
        }
        write_key([&folders[0], &folders[1]]).map_err(failed)?;
        let pairs = [("A", &hosts.a, &hosts.b), ("B", &hosts.b, &hosts.a)];
        for ((name, own, other), folder) in pairs.into_iter().zip(&folders) {
            let words = daemon_words(Path::new(netchannel), folder, own, other)?;
            command.env(format!("WORDS_{name}"), words);
        }
    }
    let status = command.status().map_err(failed)?;
    Ok(status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0)))
}

/// Writes the configuration of a host's daemon, and a file with the arguments that name the configuration.
fn daemon_words(
    netchannel: &Path,
    folder: &Path,
    own: &Host,
    other: &Host,
) -> Result<std::path::PathBuf, Error> {
    let failed = |error: std::io::Error| Error::Devices(error.to_string());
    let file = Configuration::default()
        .write(folder, own, other)
        .map_err(failed)?;
    let words = daemon_arguments(netchannel, &file).map_err(Error::Devices)?;
    let lines: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    let path = folder.join("words");
    std::fs::write(&path, lines.join("\n") + "\n").map_err(failed)?;
    Ok(path)
}
