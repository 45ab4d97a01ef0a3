//! The real nginx, one worker, and wrk.

use super::{CpuSince, installed, wait_watching};
use crate::case::Case;
use crate::ends::Ends;
use crate::error::RunError;
use crate::measurement::{Latency, Measurement};
use crate::options::Transport;
use crate::plan;
use crate::process::Process;
use crate::session::READY_LIMIT;
use std::ffi::OsString;
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE_BYTES: usize = 1024;

/// wrk's report for people stops at P99 and rounds; its `done` hook knows all.
const SCRIPT: &str = r#"
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("figures %d %d %d %d %d %.3f %.3f %.3f\n",
    summary.requests, summary.duration, summary.bytes,
    errors.connect + errors.read + errors.write + errors.timeout, errors.status,
    latency:percentile(50), latency:percentile(99), latency:percentile(99.9)))
end
"#;

/// Keep-alive, then a connection for each request.
pub fn run(ends: &Ends<'_>, transport: Transport) -> plan::Figures {
    let nginx = installed("nginx")?;
    let wrk = installed("wrk")?;
    if transport == Transport::Unix {
        return Err(RunError::NotApplicable("wrk speaks TCP only".to_owned()));
    }
    let mut listening = ends.listening_address(transport);
    if listening.port() == 0 {
        listening.set_port(ends.free_port()?);
    }
    let address = SocketAddr::new(ends.address(transport), listening.port());
    let site = Site::write(ends.server.directory(), (listening, address));
    let site = site.map_err(RunError::Files)?;
    let mut server = ends.server.start_program(
        transport.into(),
        "nginx",
        nginx.as_os_str(),
        &site.arguments(),
    )?;
    if ends.is_published {
        server.await_condition(READY_LIMIT, || site.is_served())?;
        ends.await_listener(transport, address.port())?;
    }
    let connects = || TcpStream::connect(address).is_ok();
    let answers = || ends.client.within(connects).unwrap_or(false);
    server.await_condition(READY_LIMIT, answers)?;

    let keep_alive = drive(ends, transport, &wrk, &site, &server, &[])?;
    let close = drive(
        ends,
        transport,
        &wrk,
        &site,
        &server,
        &["-H", "Connection: close"],
    )?;
    Ok(vec![
        (Case::HttpKeepAlive, keep_alive),
        (Case::HttpClose, close),
    ])
}

/// nginx's files.
struct Site {
    folder: PathBuf,
    configuration: PathBuf,
    script: PathBuf,
    /// Where clients find it.
    address: SocketAddr,
}

impl Site {
    fn write(
        directory: &Path,
        (listening, address): (SocketAddr, SocketAddr),
    ) -> std::io::Result<Self> {
        let folder = directory.join("nginx");
        fs::create_dir_all(folder.join("html"))?;
        fs::write(folder.join("html/file"), vec![b'x'; FILE_BYTES])?;
        let configuration = folder.join("nginx.conf");
        fs::write(
            &configuration,
            configuration_text(&folder, listening, is_root()),
        )?;
        let script = folder.join("figures.lua");
        fs::write(&script, SCRIPT)?;
        Ok(Site {
            folder,
            configuration,
            script,
            address,
        })
    }

    /// Whether nginx listens: it writes the number of its process then, and takes it away at its end.
    fn is_served(&self) -> bool {
        self.folder.join("nginx.pid").exists()
    }

    fn arguments(&self) -> Vec<OsString> {
        let errors = self.folder.join("error.log");
        vec![
            "-p".into(),
            self.folder.clone().into(),
            "-e".into(),
            errors.into(),
            "-c".into(),
            self.configuration.clone().into(),
        ]
    }
}

fn is_root() -> bool {
    // SAFETY: no pointers, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

fn configuration_text(folder: &Path, listening: SocketAddr, root: bool) -> String {
    let folder = folder.display();
    // As root, nginx would give its worker to a user who may not read our directory.
    let user = if root { "user root;\n" } else { "" };
    format!(
        "{user}daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    server {{
        listen {listening};
        root {folder}/html;
    }}
}}
"
    )
}

fn drive(
    ends: &Ends<'_>,
    transport: Transport,
    wrk: &Path,
    site: &Site,
    server: &Process,
    extra: &[&str],
) -> Result<Measurement, RunError> {
    // wrk knows whole seconds only.
    let seconds = format!("{:.0}s", ends.seconds().ceil().max(1.0));
    let url = format!("http://{}/file", site.address);
    let mut arguments: Vec<OsString> = ["-c", "50", "-t", "1", "-d", &seconds, "-s"]
        .map(OsString::from)
        .into();
    arguments.push(site.script.clone().into());
    arguments.extend(extra.iter().map(OsString::from));
    arguments.push(url.into());

    let cpu = CpuSince::now(ends, transport, &[server], &[]);
    let mut client =
        ends.client
            .start_program(transport.into(), "wrk", wrk.as_os_str(), &arguments)?;
    wait_watching(
        ends,
        transport,
        server,
        &mut client,
        Some(site.address.port()),
    )?;
    let cpu = cpu.used(&[server], &[&client]);
    let printed = client.output()?;
    let figures = parse(&printed).ok_or_else(|| client.unreadable(&printed))?;
    figures.check()?;
    Ok(Measurement::new(
        figures.requests,
        figures.duration,
        Some(figures.latency),
        cpu,
    ))
}

/// The output of wrk's hook.
#[derive(Debug, PartialEq)]
struct Figures {
    requests: f64,
    duration: f64,
    bytes: f64,
    socket_errors: u64,
    refusals: u64,
    latency: Latency,
}

impl Figures {
    fn check(&self) -> Result<(), RunError> {
        if self.socket_errors + self.refusals > 0 {
            return Err(RunError::Wrong(format!(
                "wrk counted {} failed requests and {} answers that were not 200",
                self.socket_errors, self.refusals
            )));
        }
        let least = self.requests * f64::from(u16::try_from(FILE_BYTES).unwrap_or(u16::MAX));
        if self.requests == 0.0 || self.bytes < least {
            let Figures {
                requests, bytes, ..
            } = self;
            return Err(RunError::Wrong(format!(
                "wrk got {bytes} bytes in {requests} answers"
            )));
        }
        Ok(())
    }
}

fn parse(report: &str) -> Option<Figures> {
    let line = report
        .lines()
        .find_map(|line| line.strip_prefix("figures "))?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let [
        requests,
        duration,
        bytes,
        socket_errors,
        refusals,
        p50,
        p99,
        p999,
    ] = words[..]
    else {
        return None;
    };
    let nanoseconds = |text: &str| {
        text.parse::<f64>()
            .ok()
            .map(|microseconds| microseconds * 1e3)
    };
    Some(Figures {
        requests: requests.parse().ok()?,
        duration: Duration::from_micros(duration.parse().ok()?).as_secs_f64(),
        bytes: bytes.parse().ok()?,
        socket_errors: socket_errors.parse().ok()?,
        refusals: refusals.parse().ok()?,
        latency: Latency {
            p50: nanoseconds(p50)?,
            p99: nanoseconds(p99)?,
            p999: nanoseconds(p999)?,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "Running 1s test @ http://127.0.0.1:4000/file\n  1 threads and 50 \
        connections\n  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    Latency   \
        565.27us  104.59us   3.03ms   92.19%\nRequests/sec:  84000.10\nTransfer/sec:    \
        104.88MB\nfigures 84000 1000000 109200000 0 0 553.000 901.000 1830.000\n";

    #[test]
    fn the_hooks_line_is_found_in_the_report() {
        let figures = parse(REPORT).unwrap();
        assert_eq!(figures.requests, 84_000.0);
        assert_eq!(figures.duration, 1.0);
        assert_eq!(
            figures.latency,
            Latency {
                p50: 553_000.0,
                p99: 901_000.0,
                p999: 1_830_000.0
            }
        );
        figures.check().unwrap();
    }

    #[test]
    fn errors_that_wrk_counted_are_failures() {
        for (good, bad) in [
            (" 0 0 553", " 3 0 553"),
            (" 0 0 553", " 0 1 553"),
            ("109200000", "1092000"),
            ("figures 84000", "figures 0"),
        ] {
            let figures = parse(&REPORT.replace(good, bad)).unwrap();
            assert!(figures.check().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_report_without_the_line_is_not_understood() {
        assert_eq!(
            parse("unable to connect to 127.0.0.1:4000 Connection refused"),
            None
        );
        assert_eq!(parse("figures 1 2 3"), None);
        assert_eq!(parse(&REPORT.replace("1830.000", "")), None);
    }

    #[test]
    fn only_root_names_a_user() {
        let folder = Path::new("/tmp/here");
        let at = SocketAddr::from(([127, 0, 0, 1], 4000));
        assert!(configuration_text(folder, at, true).starts_with("user root;\ndaemon off;"));
        let text = configuration_text(folder, at, false);
        assert!(text.starts_with("daemon off;"));
        assert!(text.contains("listen 127.0.0.1:4000;"));
    }
}
