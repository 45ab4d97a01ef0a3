//! Which daemon a command speaks to.

use std::path::{Path, PathBuf};

use netchannel_control::path::{PathError, default_socket};

/// The attach socket, absolute: the program may change its folder.
///
/// # Errors
/// When the default path can not be determined.
pub fn socket_path(given: Option<&Path>) -> Result<PathBuf, PathError> {
    let path = match given {
        Some(path) => path.to_owned(),
        None => default_socket()?,
    };
    Ok(std::path::absolute(&path).unwrap_or(path))
}
