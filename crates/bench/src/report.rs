//! The report: medians and ratios per case and transport, and what is missing.

use crate::case::Case;
use crate::ends::NO_REASON;
use crate::error::RunError;
use crate::host::Host;
use crate::measurement::Measurement;
use crate::options::Transport;
use crate::plan::{Plan, Run};
use crate::profile_report::tell;
use serde::Serialize;
use std::collections::BTreeSet;

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The machine.
    pub host: Host,
    /// The place of the programs.
    pub place: Place,
    /// Seconds of each run.
    pub seconds: f64,
    /// Runs of each transport.
    pub pairs: usize,
    /// The figures.
    pub cases: Vec<CaseReport>,
    /// Measurements that are known beforehand to be absent here.
    pub absent: Vec<Absence>,
    /// The failures.
    pub failures: Vec<Failure>,
}

/// The place of a report's programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Place {
    /// All on one host.
    OneHost,
    /// Servers on one and clients on another, which are network namespaces of one machine.
    TwoHosts {
        /// The processors of the clients' host and of the servers'; none where they share all.
        processors: [Vec<usize>; 2],
        /// Bytes of a packet, where all cases have the same.
        #[serde(skip_serializing_if = "Option::is_none")]
        packet: Option<u16>,
        /// Of the programs' connections over kernel TCP.
        congestion_control: String,
        /// Of NetChannel's channels.
        of_channels: String,
        /// Bytes to which the buffers of a TCP socket, and the rings of a virtual one, may grow.
        buffer: usize,
    },
    /// Servers on one host; clients on another, or as a tenant of it without a network.
    Tenant {
        /// The processors of the clients' host and of the servers'; none where they share all.
        processors: [Vec<usize>; 2],
        /// Of the programs' connections over kernel TCP, and of the stack's.
        congestion_control: String,
        /// Bytes to which the buffers of a TCP socket, and the rings of a virtual one, may grow.
        buffer: usize,
    },
}

impl Place {
    /// A heading for people.
    pub fn title(&self) -> &'static str {
        match self {
            Place::OneHost => "The same programs on one host, over different transports",
            Place::TwoHosts { .. } => "The same programs on two hosts, over different transports",
            Place::Tenant { .. } => "The same programs, with a network and as a tenant without one",
        }
    }

    /// A note on it, if any.
    pub fn line(&self) -> Option<String> {
        match self {
            Place::OneHost => None,
            Place::TwoHosts {
                processors: [clients, servers],
                packet,
                congestion_control,
                of_channels,
                buffer,
            } => {
                let processors = shares(clients, servers);
                let congestion_control = if congestion_control == of_channels {
                    congestion_control.clone()
                } else {
                    format!("kernel TCP {congestion_control}, channels {of_channels}")
                };
                let packet = packet.map_or_else(String::new, |bytes| format!("; MTU {bytes}"));
                Some(format!(
                    "two network namespaces joined by veth, {processors}{packet}; congestion control: {congestion_control}; \
                     buffers up to {} MiB",
                    buffer >> 20
                ))
            }
            Place::Tenant {
                processors: [clients, servers],
                congestion_control,
                buffer,
            } => Some(format!(
                "two network namespaces joined by veth, {}; congestion control: {congestion_control}; buffers up to {} MiB; \
                 the tenant is in a third namespace without a network, and the stack counts among its clients",
                shares(clients, servers),
                buffer >> 20
            )),
        }
    }
}

/// Whose which processors are.
fn shares(clients: &[usize], servers: &[usize]) -> String {
    if clients.is_empty() {
        return "which share all processors".to_owned();
    }
    let (clients, servers) = (listed(clients), listed(servers));
    format!("clients on processors {clients}, servers on {servers}")
}

/// `0-3, 8`
pub(crate) fn listed(numbers: &[usize]) -> String {
    let runs = numbers.chunk_by(|one, next| *next == one + 1);
    let text = runs.map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run.iter().map(usize::to_string).collect(),
    });
    text.collect::<Vec<_>>().join(", ")
}

/// One case over several transports.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CaseReport {
    /// Which one.
    pub case: Case,
    /// The work.
    pub title: &'static str,
    /// The unit of the rates.
    pub unit: &'static str,
    /// The meaning of the latency, which is in nanoseconds.
    pub latency_of: Option<&'static str>,
    /// A note on the figures.
    pub note: Option<&'static str>,
    /// A row for each transport that has figures.
    pub rows: Vec<Row>,
}

/// One case over one transport.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Which one.
    pub transport: Transport,
    /// Why kernel TCP carried it although this transport was asked to, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// The median of each figure.
    pub median: Measurement,
    /// The median, figure by figure, of the ratios to the TCP run of the same pair.
    pub ratio_to_tcp: Option<Measurement>,
    /// Every run, in the order of the pairs.
    pub runs: Vec<Measurement>,
}

/// An absent measurement, and the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Absence {
    /// An experiment, a transport, or one over the other.
    pub what: String,
    /// Why.
    pub reason: String,
}

/// A failed measurement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// Which experiment.
    pub experiment: &'static str,
    /// Over which transport.
    pub transport: Transport,
    /// Why.
    pub reason: String,
}

impl Row {
    /// The transport's name, or that it was not used after all.
    pub fn name(&self) -> &'static str {
        match &self.fallback {
            None => self.transport.name(),
            Some(_) => "TCP (fell back)",
        }
    }
}

impl Report {
    /// Whether every run that could be made gave figures, of the transport that it was made for.
    pub fn is_complete(&self) -> bool {
        let mut rows = self.cases.iter().flat_map(|case| &case.rows);
        self.failures.is_empty() && !self.cases.is_empty() && rows.all(|row| row.fallback.is_none())
    }

    /// The method of the figures.
    pub fn method(&self) -> String {
        let Report { pairs, seconds, .. } = self;
        match pairs {
            1 => format!("one run of {seconds} s each"),
            _ => format!("medians of {pairs} interleaved runs of {seconds} s"),
        }
    }

    /// The report for programs.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self)
            .unwrap_or_else(|_| unreachable!("a report has nothing that JSON has not"))
    }
}

/// Gathers the runs.
pub struct Collector {
    runs: Vec<(Case, Transport, Measurement)>,
    fallbacks: Vec<(Case, Transport, String)>,
    given_up: Vec<(Option<&'static str>, Transport)>,
    absent: Vec<Absence>,
    failures: Vec<Failure>,
    single_transport: bool,
}

impl Collector {
    pub fn new(plan: &Plan) -> Self {
        Collector {
            runs: Vec::new(),
            fallbacks: Vec::new(),
            given_up: Vec::new(),
            absent: Vec::new(),
            failures: Vec::new(),
            single_transport: plan.transports.len() == 1,
        }
    }

    /// A transport that no experiment can use.
    pub fn absent_everywhere(&mut self, transport: Transport, reason: &str) {
        self.given_up.push((None, transport));
        self.note_absence(transport.name().to_owned(), reason.to_owned());
    }

    /// Whether another run would only fail again.
    pub fn is_given_up(&self, experiment: &'static str, transport: Transport) -> bool {
        self.given_up.iter().any(|(which, over)| {
            *over == transport && which.is_none_or(|which| which == experiment)
        })
    }

    pub fn add(&mut self, experiment: &'static str, transport: Transport, run: impl Into<Run>) {
        let Run { figures, fallbacks } = run.into();
        let error = match figures {
            Ok(figures) => {
                for (case, measured) in figures {
                    tell(case.unit(), &measured);
                    self.runs.push((case, transport, measured));
                    let reasons = fallbacks.iter().cloned();
                    self.fallbacks
                        .extend(reasons.map(|reason| (case, transport, reason)));
                }
                return;
            }
            Err(error) => error,
        };
        self.given_up.push((Some(experiment), transport));
        let reason = error.to_string();
        match error {
            RunError::NotInstalled(_) => self.note_absence(experiment.to_owned(), reason),
            error if error.is_absence() => {
                let what = if self.single_transport {
                    experiment.to_owned()
                } else {
                    format!("{experiment} over {transport}")
                };
                self.note_absence(what, reason);
            }
            _ => self.failures.push(Failure {
                experiment,
                transport,
                reason,
            }),
        }
    }

    fn note_absence(&mut self, what: String, reason: String) {
        let absence = Absence { what, reason };
        if !self.absent.contains(&absence) {
            self.absent.push(absence);
        }
    }

    pub fn report(self, plan: &Plan, place: Place) -> Report {
        let cases = plan
            .experiments
            .iter()
            .flat_map(|experiment| &experiment.cases);
        let cases = cases.map(|&case| self.case_report(case, plan));
        Report {
            host: Host::this(),
            place,
            seconds: plan.seconds,
            pairs: plan.pairs,
            cases: cases.filter(|case| !case.rows.is_empty()).collect(),
            absent: self.absent,
            failures: self.failures,
        }
    }

    fn case_report(&self, case: Case, plan: &Plan) -> CaseReport {
        let tcp = self.runs_of(case, Transport::Tcp);
        let rows = plan.transports.iter().filter_map(|&transport| {
            let runs = self.runs_of(case, transport);
            let median = Measurement::median(&runs)?;
            // A transport that fails is given up, so equal places are of the same pair.
            let ratios: Vec<Measurement> = runs
                .iter()
                .zip(&tcp)
                .map(|(run, base)| run.ratio(base))
                .collect();
            let ratio_to_tcp = Measurement::median(&ratios);
            Some(Row {
                transport,
                fallback: self.fallback_of(case, transport),
                median,
                ratio_to_tcp,
                runs,
            })
        });
        CaseReport {
            case,
            title: case.title(),
            unit: case.unit(),
            latency_of: case.latency_of(),
            note: case.note(),
            rows: rows.collect(),
        }
    }

    fn runs_of(&self, case: Case, transport: Transport) -> Vec<Measurement> {
        let runs = self
            .runs
            .iter()
            .filter(|(of, over, _)| *of == case && *over == transport);
        runs.map(|(_, _, measured)| *measured).collect()
    }

    /// One run that fell back is enough to spoil the medians.
    fn fallback_of(&self, case: Case, transport: Transport) -> Option<String> {
        let fallbacks = self.fallbacks.iter();
        let reasons = fallbacks
            .filter(|(of, over, _)| *of == case && *over == transport)
            .map(|(_, _, reason)| reason.clone());
        reasons_text(&reasons.collect())
    }
}

/// The reasons, unless there are none. The lack of a reason is mentioned only where there is no other one.
pub(crate) fn reasons_text(reasons: &BTreeSet<String>) -> Option<String> {
    let only = reasons.len() == 1;
    let reasons: Vec<&str> = reasons
        .iter()
        .map(String::as_str)
        .filter(|reason| only || *reason != NO_REASON)
        .collect();
    (!reasons.is_empty()).then(|| reasons.join(", "))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measurement::Latency;
    use crate::options::Experiment;
    use crate::plan::Planned;

    pub fn plan(experiments: &[Experiment]) -> Plan {
        let planned = experiments.iter().map(|experiment| Planned {
            name: experiment.name(),
            cases: experiment.cases().to_vec(),
        });
        Plan {
            experiments: planned.collect(),
            transports: Transport::ALL.to_vec(),
            seconds: 0.5,
            pairs: 2,
            progress: false,
        }
    }

    fn latency(p50: f64) -> Option<Latency> {
        Some(Latency {
            p50,
            p99: p50 * 2.0,
            p999: p50 * 10.0,
        })
    }

    /// A report with figures for a stream and ping-pong, an absence and a failure.
    pub fn sample() -> Report {
        let plan = plan(&[Experiment::Stream, Experiment::Pingpong, Experiment::Redis]);
        let mut collector = Collector::new(&plan);
        for (transport, rate, p50) in [
            (Transport::Tcp, 20.0, 9_876.0),
            (Transport::Unix, 50.0, 7_000.0),
            (Transport::Netchannel, 100.0, 654.0),
        ] {
            for drift in [1.0, 1.1] {
                let stream = Measurement::new(rate * drift, 1.0, None, 1.5);
                let pingpong = Measurement::new(rate * 1234.0, 1.0, latency(p50 * drift), 0.75);
                collector.add("stream", transport, Ok(vec![(Case::Stream, stream)]));
                let figures = vec![(Case::Pingpong, pingpong)];
                collector.add("pingpong", transport, Ok(figures));
            }
            let missing = Err(RunError::NotInstalled("redis-server"));
            collector.add("redis", transport, missing);
        }
        let wrong = Err(RunError::Wrong("wrong byte in a reply".to_owned()));
        collector.add("connections", Transport::Unix, wrong);
        let mut report = collector.report(&plan, Place::OneHost);
        report.host = Host {
            kernel: "6.1.0".into(),
            processor: "Some CPU".into(),
            processors: 2,
        };
        report
    }

    #[test]
    fn ratios_are_medians_over_the_pairs() {
        let plan = plan(&[Experiment::Stream]);
        let mut collector = Collector::new(&plan);
        let run = |rate| Ok(vec![(Case::Stream, Measurement::new(rate, 1.0, None, 1.0))]);
        // The machine is four times slower in the second and third pair.
        for (tcp, netchannel) in [(40.0, 120.0), (10.0, 40.0), (10.0, 50.0)] {
            collector.add("stream", Transport::Tcp, run(tcp));
            collector.add("stream", Transport::Netchannel, run(netchannel));
        }
        let report = collector.report(&plan, Place::OneHost);
        let row = &report.cases[0].rows[1];
        assert_eq!(row.transport, Transport::Netchannel);
        assert_eq!(row.median.rate, 50.0);
        assert_eq!(row.ratio_to_tcp.unwrap().rate, 4.0);
    }

    #[test]
    fn what_is_missing_is_said_once_and_what_failed_is_not_tried_again() {
        let report = sample();
        assert_eq!(report.absent.len(), 1);
        assert_eq!(report.absent[0].what, "redis");
        assert_eq!(report.absent[0].reason, "redis-server is not installed");
        assert!(!report.is_complete());

        let mut collector = Collector::new(&plan(&[Experiment::Stream]));
        assert!(!collector.is_given_up("stream", Transport::Tcp));
        collector.add(
            "stream",
            Transport::Tcp,
            Err(RunError::Wrong("x".to_owned())),
        );
        assert!(collector.is_given_up("stream", Transport::Tcp));
        assert!(!collector.is_given_up("stream", Transport::Unix));
        assert!(!collector.is_given_up("pingpong", Transport::Tcp));
        collector.absent_everywhere(Transport::Netchannel, "no program");
        assert!(collector.is_given_up("http", Transport::Netchannel));
    }

    #[test]
    fn what_fell_back_is_said_and_is_not_complete() {
        let plan = plan(&[Experiment::Stream]);
        let mut collector = Collector::new(&plan);
        let figures = || Ok(vec![(Case::Stream, Measurement::new(1.0, 1.0, None, 1.0))]);
        collector.add("stream", Transport::Tcp, figures());
        collector.add("stream", Transport::Netchannel, figures());
        let fell_back = Run {
            figures: figures(),
            fallbacks: BTreeSet::from(["remote".to_owned()]),
        };
        collector.add("stream", Transport::Netchannel, fell_back);
        let report = collector.report(&plan, Place::OneHost);
        let names: Vec<&str> = report.cases[0].rows.iter().map(Row::name).collect();
        assert_eq!(names, ["kernel TCP", "TCP (fell back)"]);
        assert!(!report.is_complete());
        let line = "(asked to go over NetChannel, carried by kernel TCP: remote)";
        assert!(report.table().contains(line), "{}", report.table());
        assert!(report.json().contains("\"fallback\": \"remote\""));
    }

    #[test]
    fn a_report_without_any_figure_is_not_complete() {
        let plan = plan(&[Experiment::Redis]);
        assert!(
            !Collector::new(&plan)
                .report(&plan, Place::OneHost)
                .is_complete()
        );
    }

    #[test]
    fn json_has_medians_ratios_and_every_run() {
        let value: serde_json::Value = serde_json::from_str(&sample().json()).unwrap();
        let row = &value["cases"][1]["rows"][2];
        assert_eq!(value["cases"][1]["case"], "pingpong");
        assert_eq!(row["transport"], "netchannel");
        assert_eq!(row["median"]["rate"], 123_400.0);
        assert_eq!(row["ratio_to_tcp"]["rate"], 5.0);
        assert_eq!(row["runs"].as_array().unwrap().len(), 2);
        assert_eq!(
            value["cases"][0]["rows"][0]["median"]["latency"],
            serde_json::Value::Null
        );
        assert_eq!(value["failures"][0]["reason"], "wrong byte in a reply");
        assert_eq!(value["absent"][0]["what"], "redis");
    }
}
