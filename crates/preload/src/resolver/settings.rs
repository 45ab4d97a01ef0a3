//! `resolv.conf`, as far as it concerns questions over TCP.

use core::net::IpAddr;

/// Servers of which the C library takes notice.
const MOST_SERVERS: usize = 3;
const MOST_DOTS: u32 = 15;
const MOST_TIMEOUT: u32 = 30;
const MOST_ATTEMPTS: u32 = 5;

/// What it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whom to ask.
    pub servers: Vec<IpAddr>,
    /// Domains in which a short name is looked for.
    pub search: Vec<Vec<u8>>,
    /// A name with so many dots is looked for as it is before it is in the domains.
    pub dots: u32,
    /// How long a server may take, in seconds.
    pub timeout: u32,
    /// How often all servers are asked.
    pub attempts: u32,
    /// IPv6 addresses are not asked for.
    pub no_aaaa: bool,
}

impl Settings {
    /// Reads a file. Without a list of domains, that of the host is taken from its name. What is not understood is passed over, as
    /// the C library does.
    pub fn read(file: &[u8], host: &[u8]) -> Self {
        let mut settings = Self {
            servers: Vec::new(),
            search: Vec::new(),
            dots: 1,
            timeout: 5,
            attempts: 2,
            no_aaaa: false,
        };
        let mut names_domains = false;
        for line in file.split(|byte| *byte == b'\n') {
            let is_blank = |byte: &u8| byte.is_ascii_whitespace();
            let mut words = line.split(is_blank).filter(|word| !word.is_empty());
            // A keyword begins its line.
            let Some(keyword) = words.next().filter(|_| !line.first().is_some_and(is_blank)) else {
                continue;
            };
            match keyword {
                b"nameserver" => settings.servers.extend(words.next().and_then(address)),
                b"domain" | b"search" => {
                    let count = if keyword == b"domain" { 1 } else { usize::MAX };
                    settings.search = words.take(count).map(<[u8]>::to_vec).collect();
                    names_domains = true;
                }
                b"options" => words.for_each(|word| settings.set(word)),
                _ => {}
            }
        }
        settings.servers.truncate(MOST_SERVERS);
        if !names_domains && let Some(at) = host.iter().position(|byte| *byte == b'.') {
            let domain = host.split_at(at + 1).1;
            settings
                .search
                .extend((!domain.is_empty()).then(|| domain.to_vec()));
        }
        settings
    }

    fn set(&mut self, option: &[u8]) {
        let Ok(option) = core::str::from_utf8(option) else {
            return;
        };
        let (name, value) = option.split_once(':').unwrap_or((option, ""));
        let value: Option<u32> = value.parse().ok();
        match (name, value) {
            ("ndots", Some(value)) => self.dots = value.min(MOST_DOTS),
            ("timeout", Some(value)) => self.timeout = value.clamp(1, MOST_TIMEOUT),
            ("attempts", Some(value)) => self.attempts = value.clamp(1, MOST_ATTEMPTS),
            ("no-aaaa", _) => self.no_aaaa = true,
            _ => {}
        }
    }
}

/// An address; one with a zone is of this link only, which a tenant does not have.
fn address(word: &[u8]) -> Option<IpAddr> {
    core::str::from_utf8(word).ok()?.parse().ok()
}
