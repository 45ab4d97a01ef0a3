//! The destination of the daemon's log. A log that can not be written is reported once and never ends the daemon.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use tracing::Level;

/// Sets up the log of this process.
pub fn start(file: Option<&Path>, level: Level) {
    let sink = Sink {
        path: file.map(Path::to_owned),
        file: None,
        failing: false,
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_target(false)
        .with_writer(Mutex::new(sink))
        .finish();
    // Fails only where a log was started before.
    let _ = tracing::subscriber::set_global_default(subscriber);
}

/// A file that is made with its first line, or standard error.
struct Sink {
    path: Option<PathBuf>,
    file: Option<File>,
    failing: bool,
}

impl Sink {
    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let Some(path) = &self.path else {
            return io::stderr().write_all(line);
        };
        let mut file = match self.file.take() {
            Some(file) => file,
            None => OpenOptions::new()
                .create(true)
                .append(true)
                .mode(0o600)
                .open(path)?,
        };
        file.write_all(line)?;
        self.file = Some(file);
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match self.put(line) {
            Ok(()) => self.failing = false,
            Err(error) if !self.failing => {
                self.failing = true;
                let path = self.path.as_deref().unwrap_or(Path::new("standard error"));
                let sentence = format!(
                    "netchannel: the log {} cannot be written ({error}); going on without it\n",
                    path.display()
                );
                // An error means that there is no place for a report.
                let _ = io::stderr().write_all(sentence.as_bytes());
            }
            Err(_) => {}
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_ends_nothing() {
        let mut sink = Sink {
            path: Some(PathBuf::from("/dev/full")),
            file: None,
            failing: false,
        };
        assert_eq!(sink.write(b"line\n").unwrap(), 5);
        assert!(sink.failing);
        assert_eq!(sink.write(b"line\n").unwrap(), 5);
        sink.path = Some(PathBuf::from("/dev/null"));
        assert_eq!(sink.write(b"line\n").unwrap(), 5);
        assert!(!sink.failing);
    }
}
