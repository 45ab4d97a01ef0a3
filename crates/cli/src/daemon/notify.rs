//! Notifications to a service manager: `sd_notify`, without its library.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state (`READY=1`) to the service manager that started this daemon. Does nothing where the variable is not
/// set. A manager that does not listen does not keep the daemon from serving.
pub fn send_state(state: &str) {
    if let Some(place) = std::env::var_os("NOTIFY_SOCKET") {
        let _ = send(place.as_bytes(), state);
    }
}

fn send(place: &[u8], state: &str) -> std::io::Result<()> {
    let address = match place.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(place))?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.send_to_addr(state.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        send(path.as_os_str().as_bytes(), "READY=1").unwrap();
        let mut told = [0; 16];
        assert_eq!(manager.recv(&mut told).unwrap(), 7);
        assert_eq!(&told[..7], b"READY=1");
        assert!(send(b"/no/such/place", "READY=1").is_err());
    }
}
