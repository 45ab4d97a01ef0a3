//! The path of `libnetchannel.so`.

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
    /// This program itself cannot be found.
    #[error("cannot tell where this program lies ({0}); is /proc mounted?")]
    Unknown(std::io::Error),
}

/// Finds the library of this installation.
///
/// # Errors
/// When it does not exist, or its path can not be preloaded.
pub fn find() -> Result<PathBuf, LibraryError> {
    let program = std::env::current_exe().map_err(LibraryError::Unknown)?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    find_from(directory)
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
    fn a_path_that_can_not_be_preloaded_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let odd = place.path().join("a b");
        std::fs::create_dir(&odd).unwrap();
        std::fs::write(odd.join(NAME), "").unwrap();
        assert!(matches!(find_from(&odd), Err(LibraryError::Unusable(_))));
    }
}
