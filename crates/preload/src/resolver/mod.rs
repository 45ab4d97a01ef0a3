//! Names over DNS, for programs of a tenant: the C library's resolver speaks UDP from within, where no hook sees it.
//!
//! Questions, answers, `resolv.conf`, the list of domains, the order of addresses. Nothing here does I/O, reads a clock or has unsafe
//! code: whoever looks a name up passes a function that asks a server. The library can carry no dependency, so the code for DNS
//! messages is its own: what RFC 1035 and RFC 7766 ask of a client, and no more.

#![forbid(unsafe_code)]

mod lookup;
mod message;
mod name;
mod order;
mod settings;
#[cfg(test)]
mod tests;

pub use lookup::{Failure, Found, Resolver};
pub use message::{Question, Reply, kinds};
pub use name::Name;
pub use order::sort;
pub use settings::Settings;
