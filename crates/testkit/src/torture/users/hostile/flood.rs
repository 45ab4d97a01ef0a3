//! Excessive use of every resource.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use netchannel_abi::message::Operation;
use netchannel_testkit::support::Random;

use super::super::board::Counter;
use super::super::memory;
use super::hostile_program::HostileProgram;
use super::packet::{self, Attach, dial};
use super::{Stage, control_socket};

/// Leaves states of connections that no process fetches.
pub fn deposits(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        if attached.connect(random).is_none() {
            thread::sleep(Duration::from_millis(20));
            continue;
        }
        let Some(link) = attached.links.last() else {
            continue;
        };
        let (number, file) = (link.number, link.descriptors[0].as_raw_fd());
        for count in 0..20_000 {
            let words = [
                random.number(),
                number,
                count % 64,
                0,
                1,
                attached.region,
                count % 64,
            ];
            stage.board.count(Counter::Requests, 1);
            let answer = attached.attach.ask(Operation::Deposit, &words, &[file]);
            if answer.is_none() || !stage.goes_on() {
                break;
            }
        }
    }
}

/// Takes all ports.
pub fn ports(stage: &Stage, random: &mut Random) {
    let mut programs: Vec<HostileProgram> = Vec::new();
    while stage.goes_on() {
        programs.extend(stage.attach());
        for attached in &mut programs {
            while stage.goes_on() && attached.reserve([256, 4096, 65_535, 1][random.below(4)]) {}
        }
        if programs.len() > 64 {
            programs.clear();
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// Attaches thousands of programs.
pub fn programs(stage: &Stage, random: &mut Random) {
    let mut programs: Vec<(Attach, Option<packet::Answer>)> = Vec::new();
    while stage.goes_on() {
        let most = random.between(100, 3000);
        while stage.goes_on() && programs.len() < most {
            let Some(mut attach) = Attach::dial(&stage.socket) else {
                thread::sleep(Duration::from_millis(10));
                break;
            };
            stage.board.count(Counter::Requests, 1);
            let Some(answer) = attach.attach() else {
                thread::sleep(Duration::from_millis(10));
                break;
            };
            programs.push((attach, Some(answer)));
        }
        thread::sleep(Duration::from_millis(random.below(300) as u64));
        let left = random.below(programs.len() + 1);
        programs.truncate(left);
    }
}

/// Makes connections that send nothing, or half of a message.
pub fn half_open(stage: &Stage, random: &mut Random) {
    let control = control_socket(&stage.socket);
    let mut attaching: Vec<OwnedFd> = Vec::new();
    let mut asking: Vec<UnixStream> = Vec::new();
    while stage.goes_on() {
        for _ in 0..random.between(1, 400) {
            attaching.extend(dial(&stage.socket, libc::SOCK_SEQPACKET));
            if let Ok(mut stream) = UnixStream::connect(&control) {
                let _ = stream.set_nonblocking(true);
                let words: [&[u8]; 4] = [b"", b"\"stat", b"\"sockets\"\n", b"{"];
                let _ = stream.write(words[random.below(4)]);
                asking.push(stream);
            }
        }
        thread::sleep(Duration::from_millis(random.below(40) as u64));
        if random.once_in(3) || attaching.len() > 4000 {
            attaching.clear();
            asking.clear();
        }
    }
}

/// Attaches regions that claim to be full and are empty, and queries all of their content.
pub fn holes(stage: &Stage, random: &mut Random) {
    let control = control_socket(&stage.socket);
    while stage.goes_on() {
        let mut programs = Vec::new();
        while stage.goes_on() && programs.len() < 200 {
            let Some(attached) = stage.attach() else {
                break;
            };
            claim_everything(&attached);
            programs.push(attached);
        }
        for _ in 0..random.between(1, 5) {
            for question in ["\"sockets\"\n", "\"status\"\n"] {
                if stage.goes_on() {
                    read_answer(&control, question, random);
                }
            }
        }
    }
}

/// Marks all entries of a region as used.
fn claim_everything(attached: &HostileProgram) {
    let entries = 65_536;
    if let Some(words) = memory::map(attached.memory.as_raw_fd(), 4096, true) {
        // The lower half counts entries, the upper half the entries that were ever used.
        words[2].store(entries | entries << 32, Ordering::Relaxed);
        words[7].store(u64::MAX, Ordering::Relaxed);
        memory::unmap(words);
        attached.board.count(Counter::Words, 2);
    }
}

/// Sends a query and reads part of the answer or all of it, slowly or at once.
fn read_answer(control: &std::path::Path, question: &str, random: &mut Random) {
    let Ok(mut stream) = UnixStream::connect(control) else {
        return thread::sleep(Duration::from_millis(5));
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    let _ = stream.write_all(question.as_bytes());
    let mut buffer = vec![0; random.between(1, 65_536)];
    for _ in 0..random.between(0, 200) {
        match stream.read(&mut buffer) {
            Ok(1..) => {}
            _ => break,
        }
    }
}

/// Announces more listeners than fit.
pub fn listeners(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        for _ in 0..3000 {
            if !stage.goes_on() || !attached.squat(random) && random.once_in(200) {
                break;
            }
        }
        attached.serve(random);
    }
}

/// Sends requests without reading the answers, with as many descriptors as can be sent.
pub fn unread(stage: &Stage, random: &mut Random) {
    while stage.goes_on() {
        let Some(mut attached) = stage.attach() else {
            continue;
        };
        let one = attached.memory.as_raw_fd();
        let operations = [Operation::Ports, Operation::Connect, Operation::Listen];
        let operation = operations[random.below(3)];
        let many = vec![one; packet::MOST];
        for _ in 0..random.between(10, 4000) {
            let mut words = [0; 14];
            // A port that is granted by an answer that nobody reads is unknown to the judge. So none is asked for, and the
            // answer is an errno.
            if operation != Operation::Ports {
                words[0] = attached
                    .honest(random)
                    .map_or(1, |(number, _)| u64::from(number));
            }
            let beside = if random.once_in(50) { &many[..] } else { &[] };
            stage.board.count(Counter::Requests, 1);
            if !attached
                .attach
                .send_request(operation as u32, words, beside)
            {
                break;
            }
        }
        thread::sleep(Duration::from_millis(random.below(200) as u64));
    }
}
