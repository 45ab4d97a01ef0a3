//! `netchannel completions`, and `netchannel generate`: man pages and completions, for packagers.

mod manual;

use crate::arguments::{Arguments, Generate, Generated};
use clap::{CommandFactory, ValueEnum};
use clap_complete::Shell;
use std::ffi::c_int;
use std::io;
use std::path::Path;

/// Runs the command.
pub fn generate(arguments: &Generate) -> c_int {
    let target = &arguments.target;
    let written = match arguments.what {
        Generated::Man => man(target),
        Generated::Completions => match shell(target) {
            Some(shell) => return completions_of(shell),
            None => completions(target),
        },
    };
    match written {
        Ok(()) => 0,
        Err(error) => {
            let sentence = format!("cannot write into {} ({error})", target.display());
            crate::show::complain(&sentence);
            1
        }
    }
}

/// `netchannel completions`.
pub fn completions_of(shell: Shell) -> c_int {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "netchannel", &mut text);
    crate::show::print(&String::from_utf8_lossy(&text))
}

fn shell(target: &Path) -> Option<Shell> {
    Shell::from_str(target.to_str()?, false).ok()
}

fn man(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    let mut program = Arguments::command();
    program.build();
    std::fs::write(
        directory.join("netchannel.1"),
        manual::page(&program, "netchannel")?,
    )?;
    for command in program
        .get_subcommands()
        .filter(|one| !one.is_hide_set() && one.get_name() != "help")
    {
        pages(
            command,
            &format!("netchannel-{}", command.get_name()),
            directory,
        )?;
    }
    std::fs::write(directory.join("netchannel.toml.5"), manual::configuration())
}

/// The page of a command, and those of what is below it.
fn pages(command: &clap::Command, name: &str, directory: &Path) -> io::Result<()> {
    std::fs::write(
        directory.join(format!("{name}.1")),
        manual::page(command, name)?,
    )?;
    for inner in command.get_subcommands() {
        if !inner.is_hide_set() && inner.get_name() != "help" {
            pages(inner, &format!("{name}-{}", inner.get_name()), directory)?;
        }
    }
    Ok(())
}

fn completions(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut Arguments::command(), "netchannel", directory)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_page_and_every_shell_its_completions() {
        let place = tempfile::tempdir().unwrap();
        man(place.path()).unwrap();
        for page in ["netchannel.1", "netchannel-run.1", "netchannel-ss.1"] {
            let text = std::fs::read_to_string(place.path().join(page)).unwrap();
            assert!(text.contains(".SH EXAMPLES"), "{page}");
            assert!(text.contains(".SH \"EXIT STATUS\""), "{page}");
            assert!(!text.contains("EXTRA"), "{page}");
        }
        let run = std::fs::read_to_string(place.path().join("netchannel-run.1")).unwrap();
        assert!(run.contains("\\fB\\-\\-socket\\fR \\fIPATH\\fR"), "{run}");
        let file = std::fs::read_to_string(place.path().join("netchannel.toml.5")).unwrap();
        for key in ["congestion\\-control", "key\\-file", "sockets\\-per\\-peer"] {
            assert!(file.contains(key), "{key}");
        }
        completions(place.path()).unwrap();
        for file in ["netchannel.bash", "_netchannel", "netchannel.fish"] {
            assert!(place.path().join(file).is_file(), "{file}");
        }
        let bash = std::fs::read_to_string(place.path().join("netchannel.bash")).unwrap();
        assert!(bash.contains("shortest-queue"), "policies are offered");
        assert_eq!(shell(Path::new("zsh")), Some(Shell::Zsh));
        assert_eq!(shell(place.path()), None);
    }
}
