//! The processor of each worker, as the placement policy decides.

use super::shared::{LEAST_CORES, worker_name};
use super::worker::ChannelWorker;
use netchannel_scheduler::placement::{Core, Occupant, PlacementView};
use netchannel_scheduler::registry::Kind;
use netchannel_scheduler::{Class, CoreId, Placed, Registry, Settings, WorkerId};
use netchannel_service::slice;
use rustix::process::setpriority_process;
use rustix::thread::{CpuSet, gettid, sched_getaffinity, sched_setaffinity};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// The processors that this process may use.
pub fn cores() -> Vec<Core> {
    let Ok(allowed) = sched_getaffinity(None) else {
        return Vec::new();
    };
    let all = 0..CpuSet::MAX_CPU;
    let usable = all.filter(|number| allowed.is_set(*number));
    usable.filter_map(core).collect()
}

/// The topology of a processor. Where the kernel tells nothing, the processor shares nothing with others.
fn core(number: usize) -> Option<Core> {
    let id = u16::try_from(number).ok()?;
    let folder = format!("/sys/devices/system/cpu/cpu{number}");
    let read = |file: &str| -> Option<u16> {
        let text = std::fs::read_to_string(format!("{folder}/{file}")).ok()?;
        let first = text.trim().split([',', '-']).next()?;
        first.parse().ok()
    };
    let node = std::fs::read_dir(&folder).ok().and_then(|entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        let mut names = names.filter_map(|name| name.into_string().ok());
        names.find_map(|name| name.strip_prefix("node")?.parse().ok())
    });
    Some(Core {
        id: CoreId(id),
        // The first of the threads that share the core.
        physical: read("topology/thread_siblings_list").unwrap_or(id),
        group: read("cache/index3/shared_cpu_list").unwrap_or(0),
        node: node.unwrap_or(0),
    })
}

/// The placement of each worker. The first worker serves latency.
fn plan(policies: &Settings, cores: &[Core], workers: usize) -> Vec<Placed> {
    let Ok(mut policy) = Registry::builtin().placement(policies.get(Kind::Placement)) else {
        return Vec::new();
    };
    let (mut occupied, mut places) = (Vec::new(), Vec::new());
    for index in 0..workers {
        let class = match index {
            0 => Class::Latency,
            _ => Class::Throughput,
        };
        let worker = WorkerId(u16::try_from(index).unwrap_or(u16::MAX));
        let view = PlacementView {
            cores,
            occupied: &occupied,
            device_node: None,
        };
        let placed = policy.place(worker, class, &view);
        if let Some(core) = placed.core {
            occupied.push((core, Occupant::Worker(worker, class)));
        }
        places.push(placed);
    }
    places
}

impl ChannelWorker {
    /// Applies the placement policy. A setting that the system does not permit stays as it is.
    pub(super) fn apply_placement(&self) {
        let shared = &self.shared;
        let places = plan(&self.policies, &shared.cores, shared.inboxes.len());
        let Some(placed) = places.get(self.index) else {
            return;
        };
        // An error means an older kernel or another scheduling policy: the slice stays as it is.
        let _ = placed.slice > 0 && slice::set(Duration::from_nanos(placed.slice)).is_ok();
        if shared.cores.len() < LEAST_CORES {
            return;
        }
        let mut set = CpuSet::new();
        let wanted = placed.core.map(|core| core.0);
        for core in &shared.cores {
            if wanted.is_none_or(|wanted| wanted == core.id.0) {
                set.set(usize::from(core.id.0));
            }
        }
        let pinned = sched_setaffinity(None, &set).is_ok();
        if let Some(gauges) = shared.gauges.get(self.index) {
            let core = wanted
                .filter(|_| pinned)
                .map_or(0, |core| u64::from(core) + 1);
            gauges.core.store(core, Ordering::Relaxed);
        }
        // Only the superuser may raise the priority.
        let urgent = setpriority_process(Some(gettid()), placed.nice.into()).is_ok();
        tracing::debug!(
            "worker {}: {}{}",
            worker_name(self.index),
            placed.reason,
            if urgent {
                ""
            } else {
                "; its priority stays as it is"
            }
        );
    }
}
