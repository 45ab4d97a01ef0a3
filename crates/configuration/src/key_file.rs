//! Files with keys: secret, or refused.

use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use netchannel_wire::Key;
use netchannel_wire::key::MOST_KEY_FILE;
use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::types::SharedKey;

/// Reads a key file. An error is a sentence with the reason and the remedy.
pub(crate) fn read(path: &Path) -> Result<SharedKey, String> {
    let shown = path.display();
    let unreadable = |error| {
        format!(
            "the key file {shown} cannot be read ({error}); `(umask 077; openssl rand -hex 32 > {shown})` makes one, for \
             both hosts"
        )
    };
    // A special file must not block the daemon.
    let flags = (OFlags::NONBLOCK | OFlags::NOCTTY).bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags.cast_signed())
        .open(path)
        .map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("{shown} is not a file; name the key file"));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(format!(
            "others may use the key file {shown} (its mode is {mode:04o}): `chmod 600 {shown}`, and make a new key if \
             they may have read it"
        ));
    }
    let own = rustix::process::geteuid().as_raw();
    if metadata.uid() != own && metadata.uid() != 0 {
        return Err(format!(
            "the key file {shown} belongs to user {}, who could change it: `chown {own} {shown}`",
            metadata.uid()
        ));
    }
    // One byte more than a key may have is read, to detect a file that is too long.
    let mut contents = Zeroizing::new(Vec::with_capacity(MOST_KEY_FILE + 1));
    file.take(MOST_KEY_FILE as u64 + 1)
        .read_to_end(&mut contents)
        .map_err(unreadable)?;
    let key = Key::from_contents(&contents).map_err(|error| format!("{shown}: {error}"))?;
    Ok(SharedKey::new(key, &contents))
}
