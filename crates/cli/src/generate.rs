//! `netchannel generate`: man pages and completions, for whoever packages this.

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
            Some(shell) => {
                let command = &mut Arguments::command();
                clap_complete::generate(shell, command, "netchannel", &mut io::stdout());
                Ok(())
            }
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

fn shell(target: &Path) -> Option<Shell> {
    Shell::from_str(target.to_str()?, false).ok()
}

fn man(directory: &Path) -> io::Result<()> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Arguments::command(), directory)
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
            assert!(text.contains("Examples"), "{page}");
        }
        completions(place.path()).unwrap();
        for file in ["netchannel.bash", "_netchannel", "netchannel.fish"] {
            assert!(place.path().join(file).is_file(), "{file}");
        }
        assert_eq!(shell(Path::new("zsh")), Some(Shell::Zsh));
        assert_eq!(shell(place.path()), None);
    }
}
