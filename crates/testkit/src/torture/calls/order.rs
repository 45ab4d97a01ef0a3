//! Which of several clients that wait is accepted first. A socket that other processes have when it is connected, whose
//! former association was ended, or that is connected at a limit of descriptors, is connected by the kernel, and waits in
//! another queue than virtual clients do.

use super::program::{Program, SECOND, Step};

/// The kinds of address that name a listener.
const LISTENERS: [i64; 3] = [0, 8, 11];
/// The kind of address that ends an association.
const UNSPECIFIED: i64 = 6;

/// Whether, up to a step, a client of each kind waits at the same time.
pub fn is_mixed(program: &Program, place: usize) -> bool {
    let mut made: Vec<i64> = Vec::new();
    let mut shared: Vec<i64> = Vec::new();
    let mut waiting: Vec<bool> = Vec::new();
    let mut listening: Vec<i64> = Vec::new();
    let mut passes_listeners = false;
    let mut is_limited = false;
    for step in &program.steps[..=place] {
        let first = word(step, 0, 0);
        match step.form.name {
            "socket" => made.push(step.number),
            "fork" => shared.append(&mut made),
            "listen" => listening.push(first),
            "setrlimit" => is_limited = true,
            "sendmsg" if word(step, 1, 1) == 1 => {
                passes_listeners |= listening.contains(&word(step, 1, 3));
                shared.push(word(step, 1, 3));
            }
            "recvmsg" => {
                listening.extend(passes_listeners.then_some(step.number + SECOND));
                shared.push(step.number + SECOND);
            }
            "connect" if LISTENERS.contains(&word(step, 1, 0)) => {
                made.retain(|one| *one != first);
                waiting.push(is_limited || shared.contains(&first));
            }
            "connect" if word(step, 1, 0) == UNSPECIFIED => shared.push(first),
            "accept" | "accept4" if listening.contains(&first) && !waiting.is_empty() => {
                waiting.remove(0);
            }
            _ => {}
        }
        if waiting.contains(&true) && waiting.contains(&false) {
            return true;
        }
    }
    false
}

fn word(step: &Step, argument: usize, at: usize) -> i64 {
    let argument = step.arguments.get(argument);
    argument
        .and_then(|argument| argument.get(at))
        .copied()
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mixed(lines: &str) -> bool {
        let program = Program::read(lines).unwrap();
        is_mixed(&program, program.steps.len() - 1)
    }

    const BEGIN: &str = "3 @0 socket(AF_INET, SOCK_STREAM, IPPROTO_IP)
        5 @0 listen(v3, 5)
        6 @0 socket(AF_INET, SOCK_STREAM, IPPROTO_IP)
        7 @0 socket(AF_INET, SOCK_STREAM, IPPROTO_IP)
        8 @0 connect(v7, {of,v3,0,0})
        ";
    const PASSED: &str = "10 @0 sendmsg(v1, {1,1,0,v6}, 0)
        ";
    const ACCEPTED: &str = "11 @0 accept(v3, right)
        ";
    const CONNECTED: &str = "12 @0 connect(v6, {of,v3,0,0})
        ";

    #[test]
    fn only_clients_of_both_kinds_that_wait_together_are_mixed() {
        let mixed = |parts: &[&str]| mixed(&parts.concat());
        assert!(mixed(&[BEGIN, PASSED, CONNECTED]));
        assert!(mixed(&[BEGIN, "9 @0 fork(1)\n", CONNECTED]));
        assert!(mixed(&[
            BEGIN,
            "9 @0 setrlimit(RLIMIT_NOFILE, {4,1})\n",
            CONNECTED
        ]));
        assert!(mixed(&[
            BEGIN,
            PASSED,
            "11 @0 accept(v7, right)\n",
            CONNECTED
        ]));
        assert!(mixed(&[
            BEGIN,
            "9 @0 connect(v6, {unspec,v3,0,0})\n",
            CONNECTED
        ]));
        assert!(!mixed(&[BEGIN, CONNECTED]));
        assert!(!mixed(&[BEGIN, PASSED, ACCEPTED, CONNECTED]));
    }
}
