//! The path of `libnetchannel.so`.

use crate::elf;
use netchannel_abi::{LAYOUT_HASH, note};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Its file name.
pub use netchannel_control::path::LIBRARY as NAME;

/// Why it cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    /// It was not found.
    #[error(
        "{NAME} is not beside {0}, nor in ../lib/netchannel or ../lib from there; build it with \
         `cargo build --release` or install it"
    )]
    Missing(PathBuf),
    /// The dynamic linker splits `LD_PRELOAD` at these.
    #[error("the path {0} has a blank or a colon, which LD_PRELOAD cannot hold; move it")]
    Unusable(PathBuf),
    /// It is of another build, and could attach to no daemon of this one.
    #[error(
        "{0} is of another version than this program, and would leave every socket to kernel TCP; \
         build or install both together"
    )]
    OtherVersion(PathBuf),
    /// This program itself cannot be found.
    #[error("cannot tell where this program lies ({0}); is /proc mounted?")]
    Unknown(std::io::Error),
}

/// Finds the library of this installation.
///
/// # Errors
/// When it does not exist, is of another version, or its path can not be preloaded.
pub fn find() -> Result<PathBuf, LibraryError> {
    let program = std::env::current_exe().map_err(LibraryError::Unknown)?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let found = find_from(directory)?;
    if layout_of(&found) != Some(LAYOUT_HASH) {
        return Err(LibraryError::OtherVersion(found));
    }
    Ok(found)
}

/// The layouts that a library was built with, by the note that it has.
fn layout_of(library: &Path) -> Option<u64> {
    let mut head = Vec::new();
    let mut opened = File::open(library).ok()?;
    opened
        .by_ref()
        .take(elf::HEAD)
        .read_to_end(&mut head)
        .ok()?;
    let notes = elf::contents(&opened, &head, &[elf::NOTES])?;
    notes.iter().find_map(|(_, notes)| note::layout_of(notes))
}

fn find_from(directory: &Path) -> Result<PathBuf, LibraryError> {
    let above = directory.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.to_owned(),
        above.join("lib/netchannel"),
        above.join("lib"),
    ];
    let found = places
        .iter()
        .map(|place| place.join(NAME))
        .find(|file| file.is_file())
        .ok_or_else(|| LibraryError::Missing(directory.to_owned()))?;
    let bytes = found.as_os_str().as_encoded_bytes();
    if bytes
        .iter()
        .any(|byte| byte.is_ascii_whitespace() || *byte == b':')
    {
        return Err(LibraryError::Unusable(found));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_found_beside_the_program_or_in_the_library_folder() {
        let place = tempfile::tempdir().unwrap();
        let programs = place.path().join("bin");
        let libraries = place.path().join("lib/netchannel");
        std::fs::create_dir_all(&programs).unwrap();
        std::fs::create_dir_all(&libraries).unwrap();
        assert!(matches!(
            find_from(&programs),
            Err(LibraryError::Missing(_))
        ));
        std::fs::write(libraries.join(NAME), "").unwrap();
        assert_eq!(find_from(&programs).unwrap(), libraries.join(NAME));
        std::fs::write(programs.join(NAME), "").unwrap();
        assert_eq!(find_from(&programs).unwrap(), programs.join(NAME));
    }

    #[test]
    fn the_layouts_of_a_library_are_told_by_its_note() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(NAME);
        let told = |bytes: &[u8]| {
            std::fs::write(&file, bytes).unwrap();
            layout_of(&file)
        };
        let mut note = b"\x0b\0\0\0\x08\0\0\0\x01\0\0\0NetChannel\0\0".to_vec();
        note.extend(7_u64.to_le_bytes());
        assert_eq!(told(&elf::sample(elf::NOTES, &note)), Some(7));
        assert_eq!(told(&elf::sample(elf::INTERPRETER, &note)), None);
        assert_eq!(told(b"\x7fELF"), None);
        assert_eq!(told(b""), None);
    }

    #[test]
    fn a_path_that_can_not_be_preloaded_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("a b");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join(NAME), "").unwrap();
        assert!(matches!(find_from(&odd), Err(LibraryError::Unusable(_))));
    }
}
