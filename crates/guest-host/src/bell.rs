//! The doorbell: a socket to which the virtual machine connects. A byte says that there is something in the region; its end says that
//! the machine has ended.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// The socket, and who is connected to it.
#[derive(Debug)]
pub struct Bells {
    listener: UnixListener,
    path: PathBuf,
    stream: Option<UnixStream>,
}

/// What was heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heard {
    /// Nothing, or a ring.
    Ring,
    /// The machine has ended.
    End,
}

impl Bells {
    /// Listens at a path. A socket that is there gives way.
    ///
    /// # Errors
    /// Those of the calls.
    pub fn bind(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::FileTypeExt;
        if std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket()) {
            std::fs::remove_file(path)?;
        }
        let listener = UnixListener::bind(path)?;
        listener.set_nonblocking(true)?;
        Ok(Self {
            listener,
            path: path.to_owned(),
            stream: None,
        })
    }

    /// To be watched for machines.
    pub(crate) const fn listener(&self) -> &UnixListener {
        &self.listener
    }

    /// Takes a machine: the last one is it. Returns it, to be watched.
    pub(crate) fn accept(&mut self) -> Option<&UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        stream.set_nonblocking(true).ok()?;
        Some(self.stream.insert(stream))
    }

    /// Whether a machine is there.
    pub(crate) const fn works(&self) -> bool {
        self.stream.is_some()
    }

    /// Takes the rings.
    pub(crate) fn hear(&mut self) -> Heard {
        let Some(stream) = &mut self.stream else {
            return Heard::Ring;
        };
        match stream.read(&mut [0; 64]) {
            Ok(1..) => Heard::Ring,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                Heard::Ring
            }
            Ok(0) | Err(_) => {
                self.stream = None;
                Heard::End
            }
        }
    }

    /// Rings.
    pub(crate) fn ring(&mut self) {
        if let Some(stream) = &mut self.stream {
            // A bell that is full rings already.
            let _ = stream.write(b"!");
        }
    }
}

impl Drop for Bells {
    fn drop(&mut self) {
        // Another process may have made it its own.
        let _ = std::fs::remove_file(&self.path);
    }
}
