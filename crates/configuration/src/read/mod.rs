//! Reads the text, section after section. The configuration is used only if all of it is valid, and every mistake is
//! reported.

mod destinations;
mod host;
mod meetings;
mod peers;
mod policies;
mod stacks;
mod table;
mod tenants;
mod transport;
mod trust;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use netchannel_control::configuration::Problem;
use toml::de::{DeTable, DeValue};

use crate::problems::{Collector, Problems};
use crate::types::Configuration;
use table::{Item, Section};

/// Largest file that is taken for a configuration, in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// The known tables.
pub(crate) const SECTIONS: [&str; 9] = [
    "host",
    "peers",
    "scheduler",
    "transport",
    "times",
    "limits",
    "metrics",
    "tenants",
    "stacks",
];

impl Configuration {
    /// Reads and checks a file, and the key files that it names.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn load(file: &Path) -> Result<Self, Problems> {
        match read_whole(file) {
            Ok(text) => Self::parse_on(&text, file, &netchannel_driver::congestion_control_refusal),
            Err(sentence) => Err(Problems {
                file: file.to_owned(),
                problems: vec![Problem {
                    line: 0,
                    column: 0,
                    key: String::new(),
                    sentence: netchannel_control::plain(&sentence),
                }],
            }),
        }
    }

    /// Checks a text as if it stood in `file`: key files are looked for from its folder.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn parse(text: &str, file: &Path) -> Result<Self, Problems> {
        Self::parse_on(text, file, &|_| None)
    }

    /// The same, on a host whose kernel lacks congestion controls, as `refusal` states.
    fn parse_on(
        text: &str,
        file: &Path,
        refusal: transport::Refusal<'_>,
    ) -> Result<Self, Problems> {
        let collector = Collector::new(text);
        let (document, errors) = DeTable::parse_recoverable(text);
        for error in &errors {
            let span = error.span().unwrap_or_default();
            let message = error.message();
            collector.report(&span, "", format!("this is not TOML: {message}"));
        }
        if !errors.is_empty() {
            // Further mistakes may only be consequences of these.
            collector.finish(file)?;
        }
        let root = Section::new(&collector, document.get_ref(), "", document.span());
        root.known(&SECTIONS);
        let scheduler = policies::scheduler(&root);
        let host = host::host(&root);
        let metrics = host::metrics(&root, &host);
        let stacks = stacks::stacks(&root, refusal);
        let (peers, has_all_peers) = peers::peers(&root, &host, &scheduler, file);
        let around = destinations::Surroundings {
            host: &host,
            peers: &peers,
            has_all_peers,
            stacks: &stacks,
        };
        let tenants = tenants::tenants(&root, around, metrics, (file, refusal));
        let mut configuration = Self {
            file: absolute(file),
            tenants,
            peers,
            stacks,
            metrics,
            host,
            scheduler,
            carrier: transport::carrier(&root),
            transport: transport::transport(&root, refusal),
            times: transport::times(&root),
            limits: host::limits(&root),
        };
        collector.finish(file)?;
        for peer in &mut configuration.peers {
            peer.key_file = absolute(&peer.key_file);
        }
        Ok(configuration)
    }
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

fn read_whole(file: &Path) -> Result<String, String> {
    use std::os::unix::fs::MetadataExt;
    let shown = file.display();
    let unreadable = |error| {
        format!("{shown} cannot be read ({error}); `netchannel config example` shows what to write")
    };
    let metadata = std::fs::metadata(file).map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(format!("{shown} is not a file; name one"));
    }
    if metadata.len() > MOST_BYTES {
        return Err(format!(
            "{shown} has {} bytes, more than a configuration has (at most {MOST_BYTES})",
            metadata.len()
        ));
    }
    if metadata.mode() & 0o002 != 0 {
        return Err(format!(
            "anybody may write {shown}, and so choose this host's peers; `chmod o-w {shown}`"
        ));
    }
    let bytes = std::fs::read(file).map_err(unreadable)?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not text in UTF-8"))
}

/// An address, with the port `default` where it names none.
fn address(
    section: &Section<'_>,
    key: &str,
    item: &Item<String>,
    default: u16,
) -> Option<SocketAddr> {
    let text = item.value.as_str();
    let bare = text
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let parsed = text.parse().ok().or_else(|| {
        let address: IpAddr = bare.unwrap_or(text).parse().ok()?;
        Some(SocketAddr::new(address, default))
    });
    match parsed {
        None => section.report(
            &item.span,
            key,
            format!(
                "{text:?} is not an address: write one like 10.0.0.2:{default} or \
                 [fd00::2]:{default} (names are not looked up)"
            ),
        ),
        Some(address) if address.port() == 0 => {
            section.report(
                &item.span,
                key,
                format!("{text:?} has port 0: write the port, usually {default}"),
            );
            return None;
        }
        Some(address) if address.ip().is_multicast() => {
            section.report(
                &item.span,
                key,
                format!("{text:?} is a multicast address: write that of one host"),
            );
            return None;
        }
        Some(_) => {}
    }
    parsed
}

/// A list whose invalid entries are reported one by one, and left out.
fn addresses(section: &Section<'_>, key: &str, default: u16) -> Vec<Item<SocketAddr>> {
    let mut found: Vec<Item<SocketAddr>> = Vec::new();
    for item in section.strings(key) {
        let Some(value) = address(section, key, &item, default) else {
            continue;
        };
        if found.iter().any(|other| other.value == value) {
            section.report(
                &item.span,
                key,
                format!("{value} is named twice: remove one"),
            );
            continue;
        }
        found.push(Item {
            value,
            span: item.span,
        });
    }
    found
}

/// A path, from the folder of the file.
fn path_from(file: &Path, text: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).join(text)
}

/// The name of a value's type in a sentence.
fn called(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}
