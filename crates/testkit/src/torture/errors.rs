//! Errors by the names of their errno values.

use std::io::ErrorKind;

/// The name of an error that ends connections.
pub fn name(error: &std::io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionReset => "ECONNRESET".to_owned(),
        ErrorKind::TimedOut => "ETIMEDOUT".to_owned(),
        ErrorKind::BrokenPipe => "EPIPE".to_owned(),
        ErrorKind::ConnectionRefused => "ECONNREFUSED".to_owned(),
        ErrorKind::HostUnreachable => "EHOSTUNREACH".to_owned(),
        _ => error.to_string(),
    }
}
