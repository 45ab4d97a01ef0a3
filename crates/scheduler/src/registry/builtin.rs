//! The policies of this crate. The first of a kind is its default.

use super::{Description, Maker, Parameter, Unit, Values, independent};
use crate::channel::{RoundRobin, ShortestQueue, SocketHash, Sticky, THRESHOLD};
use crate::copy::{CopyParameters, LocalCopy, Pick, Split};
use crate::order::{Fair, FairParameters, Shares};
use crate::placement::{Anywhere, Near, Spread, Urgency};
use crate::scale::{Fixed, Hysteresis, HysteresisParameters};
use crate::time::{MILLISECOND, SECOND};

pub(super) static ENTRIES: &[(&Description, Maker)] = &[
    (
        &ROUND_ROBIN,
        Maker::Channel(|values| {
            let threshold = values.get("threshold");
            Box::new(RoundRobin::new(threshold, values.get_u32("stay")))
        }),
    ),
    (
        &SHORTEST_QUEUE,
        Maker::Channel(|values| {
            let threshold = values.get("threshold");
            Box::new(ShortestQueue::new(
                threshold,
                values.is_on("congested-last"),
            ))
        }),
    ),
    (
        &STICKY,
        Maker::Channel(|values| {
            Box::new(Sticky::new(values.get("threshold"), values.get("spill")))
        }),
    ),
    (
        &SOCKET_HASH,
        Maker::Channel(|values| Box::new(SocketHash::new(values.get("threshold")))),
    ),
    (
        &WEIGHTED_TENANTS,
        Maker::Order(|values| Box::new(Fair::new(fair(values, Shares::Weighted)))),
    ),
    (
        &DEFICIT_ROUND_ROBIN,
        Maker::Order(|values| Box::new(Fair::new(fair(values, Shares::PerSocket)))),
    ),
    (
        &HYSTERESIS,
        Maker::Scale(|values| Box::new(Hysteresis::new(hysteresis(values)))),
    ),
    (
        &FIXED,
        Maker::Scale(|values| {
            let latency = values.get_u16("latency");
            Box::new(Fixed::new(latency, values.get_u16("throughput")))
        }),
    ),
    (
        &NEAR,
        Maker::Placement(|values| Box::new(Near::new(urgency(values)))),
    ),
    (
        &SPREAD,
        Maker::Placement(|values| Box::new(Spread::new(urgency(values)))),
    ),
    (
        &ANYWHERE,
        Maker::Placement(|values| Box::new(Anywhere::new(urgency(values)))),
    ),
    (
        &COPY_LEAST_LOADED,
        Maker::Copy(|values| Box::new(Split::new(copy(values, Pick::LeastLoaded)))),
    ),
    (
        &COPY_ROUND_ROBIN,
        Maker::Copy(|values| Box::new(Split::new(copy(values, Pick::RoundRobin)))),
    ),
    (&COPY_LOCAL, Maker::Copy(|_| Box::new(LocalCopy))),
];

/// Of a class to one peer: 64 of both is what retention keeps apart (see `netchannel-vns`).
const MOST_CHANNELS: u64 = 32;

const OFF_ON: Unit = Unit::Word(&["off", "on"]);

const fn bytes(
    name: &'static str,
    summary: &'static str,
    least: u64,
    most: u64,
    default: u64,
) -> Parameter {
    Parameter {
        name,
        summary,
        unit: Unit::Bytes,
        least,
        most,
        default,
    }
}

const fn count(name: &'static str, summary: &'static str, most: u64, default: u64) -> Parameter {
    Parameter {
        name,
        summary,
        unit: Unit::Count,
        least: if default == 0 { 0 } else { 1 },
        most,
        default,
    }
}

const fn time(
    name: &'static str,
    summary: &'static str,
    least: u64,
    most: u64,
    default: u64,
) -> Parameter {
    Parameter {
        name,
        summary,
        unit: Unit::Time,
        least,
        most,
        default,
    }
}

const fn percent(
    name: &'static str,
    summary: &'static str,
    least: u64,
    most: u64,
    default: u64,
) -> Parameter {
    Parameter {
        name,
        summary,
        unit: Unit::Percent,
        least,
        most,
        default,
    }
}

const fn word(
    name: &'static str,
    summary: &'static str,
    words: &'static [&'static str],
) -> Parameter {
    Parameter {
        name,
        summary,
        unit: Unit::Word(words),
        least: 0,
        most: words.len() as u64 - 1,
        default: 0,
    }
}

const OCCUPANCY: Parameter = bytes(
    "threshold",
    "occupancy from which on a channel gets no further segment",
    4 << 10,
    1 << 30,
    THRESHOLD,
);

static ROUND_ROBIN: Description = Description {
    name: "round-robin",
    summary: "each channel in turn, passing over those at the threshold",
    parameters: &[
        OCCUPANCY,
        count("stay", "segments on a channel before the next", 1024, 1),
    ],
    check: independent,
};

static SHORTEST_QUEUE: Description = Description {
    name: "shortest-queue",
    summary: "the channel with the fewest bytes to send",
    parameters: &[
        OCCUPANCY,
        Parameter {
            name: "congested-last",
            summary: "channels held back by their congestion window come last",
            unit: OFF_ON,
            least: 0,
            most: 1,
            default: 1,
        },
    ],
    check: independent,
};

static STICKY: Description = Description {
    name: "sticky",
    summary: "a socket stays on its channel until that is busy",
    parameters: &[
        OCCUPANCY,
        bytes(
            "spill",
            "occupancy from which on a socket looks for another channel",
            4 << 10,
            1 << 30,
            512 << 10,
        ),
    ],
    check: sticky_goes_together,
};

fn sticky_goes_together(values: &Values<'_>) -> Result<(), &'static str> {
    match values.get("spill") <= values.get("threshold") {
        true => Ok(()),
        false => Err("spill must not be above threshold"),
    }
}

static SOCKET_HASH: Description = Description {
    name: "socket-hash",
    summary: "one channel per socket, by its number: a baseline",
    parameters: &[OCCUPANCY],
    check: independent,
};

const FAIR: [Parameter; 3] = [
    bytes(
        "quantum",
        "bytes of a turn, and the largest segment",
        1 << 10,
        16 << 20,
        64 << 10,
    ),
    word(
        "classes",
        "latency before throughput, or both alike",
        &["strict", "equal"],
    ),
    percent(
        "throughput-share",
        "what throughput gets while latency has bytes",
        0,
        50,
        0,
    ),
];

static WEIGHTED_TENANTS: Description = Description {
    name: "weighted-tenants",
    summary: "latency first; tenants share by weight, sockets of a tenant alike",
    parameters: &FAIR,
    check: independent,
};

static DEFICIT_ROUND_ROBIN: Description = Description {
    name: "deficit-round-robin",
    summary: "latency first; all sockets share alike, whoever has them",
    parameters: &FAIR,
    check: independent,
};

pub(super) fn fair(values: &Values<'_>, shares: Shares) -> FairParameters {
    FairParameters {
        shares,
        quantum: values.get_u32("quantum"),
        class_priority: !values.is_on("classes"),
        throughput_share: values.get_u8("throughput-share"),
    }
}

static HYSTERESIS: Description = Description {
    name: "hysteresis",
    summary: "more channels when workers stay busy, fewer when they stay idle",
    parameters: &[
        count("least", "least throughput channels", MOST_CHANNELS, 1),
        count("most", "most throughput channels", MOST_CHANNELS, 4),
        count("latency-least", "least latency channels", MOST_CHANNELS, 1),
        count("latency-most", "most latency channels", MOST_CHANNELS, 1),
        percent(
            "busy",
            "utilisation from which on a worker is busy",
            2,
            100,
            85,
        ),
        percent("idle", "utilisation below which it is idle", 1, 99, 30),
        time(
            "busy-for",
            "how long busy must last",
            0,
            600 * SECOND,
            200 * MILLISECOND,
        ),
        time(
            "idle-for",
            "how long idle must last",
            0,
            3600 * SECOND,
            5 * SECOND,
        ),
        time(
            "pause",
            "how long nothing changes after a change",
            0,
            600 * SECOND,
            SECOND,
        ),
    ],
    check: hysteresis_goes_together,
};

fn hysteresis_goes_together(values: &Values<'_>) -> Result<(), &'static str> {
    if values.get("least") > values.get("most") {
        Err("least must not be above most")
    } else if values.get("latency-least") > values.get("latency-most") {
        Err("latency-least must not be above latency-most")
    } else if values.get("idle") >= values.get("busy") {
        Err("idle must be below busy")
    } else {
        Ok(())
    }
}

pub(super) fn hysteresis(values: &Values<'_>) -> HysteresisParameters {
    let range = |least, most| (values.get_u16(least), values.get_u16(most));
    HysteresisParameters {
        counts: [
            range("latency-least", "latency-most"),
            range("least", "most"),
        ],
        busy: values.get_u16("busy") * 10,
        idle: values.get_u16("idle") * 10,
        busy_for: values.get("busy-for"),
        idle_for: values.get("idle-for"),
        pause: values.get("pause"),
    }
}

static FIXED: Description = Description {
    name: "fixed",
    summary: "always as many channels",
    parameters: &[
        count("throughput", "throughput channels", MOST_CHANNELS, 1),
        Parameter {
            least: 0,
            ..count("latency", "latency channels", MOST_CHANNELS, 1)
        },
    ],
    check: independent,
};

const URGENCY: [Parameter; 2] = [
    Parameter {
        least: 0,
        ..count(
            "latency-priority",
            "niceness of latency workers below 0",
            20,
            10,
        )
    },
    time(
        "latency-slice",
        "their slice, 0 for the kernel's own",
        0,
        100 * MILLISECOND,
        MILLISECOND / 10,
    ),
];

static NEAR: Description = Description {
    name: "near",
    summary: "apart from what disturbs, near to programs and the device",
    parameters: &URGENCY,
    check: independent,
};

static SPREAD: Description = Description {
    name: "spread",
    summary: "over as many last-level caches as there are",
    parameters: &URGENCY,
    check: independent,
};

static ANYWHERE: Description = Description {
    name: "anywhere",
    summary: "workers are not pinned",
    parameters: &URGENCY,
    check: independent,
};

fn urgency(values: &Values<'_>) -> Urgency {
    Urgency {
        priority: values.get_u8("latency-priority"),
        slice: values.get("latency-slice"),
    }
}

const COPY: [Parameter; 7] = [
    Parameter {
        name: "workers",
        summary: "most copy workers of a program; one for each four processors, and none on fewer",
        unit: Unit::Count,
        least: 0,
        most: 8,
        default: 3,
    },
    bytes(
        "copy-threshold",
        "bytes of a copy worker from which on it gets no more",
        4 << 10,
        1 << 30,
        640 << 10,
    ),
    bytes(
        "least",
        "calls below this are not split",
        64 << 10,
        1 << 30,
        256 << 10,
    ),
    bytes("local", "what the caller copies first", 0, 1 << 30, 62_620),
    bytes("part", "bytes of a part", 4 << 10, 1 << 30, 62_620),
    bytes(
        "in-flight-send",
        "a sender with so much at copy workers copies itself",
        4 << 10,
        1 << 30,
        751_440,
    ),
    bytes(
        "in-flight-receive",
        "and a receiver",
        4 << 10,
        1 << 30,
        250_480,
    ),
];

static COPY_LEAST_LOADED: Description = Description {
    name: "copy-least-loaded",
    summary: "large calls are split, parts go to the worker with the fewest bytes",
    parameters: &COPY,
    check: independent,
};

static COPY_ROUND_ROBIN: Description = Description {
    name: "copy-round-robin",
    summary: "large calls are split, parts go to each worker in turn",
    parameters: &COPY,
    check: independent,
};

static COPY_LOCAL: Description = Description {
    name: "copy-local",
    summary: "the caller copies everything",
    parameters: &[],
    check: independent,
};

pub(super) fn copy(values: &Values<'_>, pick: Pick) -> CopyParameters {
    CopyParameters {
        pick,
        workers: values.get_u32("workers"),
        threshold: values.get("copy-threshold"),
        least: values.get("least"),
        local: values.get("local"),
        part: values.get("part"),
        in_flight_send: values.get("in-flight-send"),
        in_flight_receive: values.get("in-flight-receive"),
    }
}
