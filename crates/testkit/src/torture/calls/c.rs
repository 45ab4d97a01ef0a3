//! Writes a finding as a C program that makes the steps and prints `SAME` if the results are those of kernel TCP, or
//! `DIFFER`.

use std::fmt::Write;

use super::form::{Kind, LIMIT_VALUES};
use super::memory::{at, first, shape_sizes};
use super::program::{Argument, Program, SECOND, Step, literal_of};
use super::words::OPTIONS;

const PRELUDE: &str = include_str!("c_prelude.h");

/// The C program, or the call that has no C form.
pub fn source(program: &Program, place: usize, kernel: &[String]) -> Result<String, String> {
    let mut text = format!(
        "/* cc -w -o difference this.c && ./difference && netchannel run -- ./difference */\n{PRELUDE}\nint main(void)\n{{\n    long r;\n    start();\n"
    );
    for (index, step) in program.steps.iter().enumerate() {
        let expected = kernel.get(index).map_or("", String::as_str);
        let waits = expected.starts_with("waited");
        let _ = writeln!(
            text,
            "    /* {step} */\n    if (mine({index}, {})) {{",
            step.actor
        );
        let after = if waits { "usleep(100000); " } else { "" };
        let mut body = Body::default();
        body.step(step)?;
        if waits {
            let _ = writeln!(text, "        turn_to({});", index + 1);
        }
        let _ = write!(text, "{}", body.lines);
        if index == place {
            let _ = writeln!(
                text,
                "        shared->same = {};",
                body.expectation(expected)
            );
            let _ = writeln!(
                text,
                "        printf(\"{}: %ld %s\\n\", r, r == -1 ? strerror(errno) : \"\");",
                step.form.name
            );
        }
        if !waits {
            let _ = writeln!(text, "        turn_to({});", index + 1);
        }
        let _ = writeln!(text, "    }}");
        if !after.is_empty() {
            let _ = writeln!(text, "    {after}");
        }
    }
    let _ = writeln!(
        text,
        "    fflush(stdout);\n    if (me)\n        _exit(0);\n    while (wait(0) > 0 || errno == EINTR)\n        ;\n    puts(shared->same ? \"SAME\" : \"DIFFER\");\n    return !shared->same;\n}}"
    );
    Ok(text)
}

/// The C code of one step.
#[derive(Default)]
struct Body {
    lines: String,
    words: Vec<String>,
    /// Values that are compared besides the result.
    looks: Vec<Look>,
}

/// A value besides the result: its name in the judge's text, and the C expressions for it.
struct Look(&'static str, Vec<String>);

fn descriptor(value: i64) -> String {
    literal_of(value).map_or_else(|| format!("v[{value}]"), |number| number.to_string())
}

fn place(word: i64, good: &str, size: i64) -> String {
    match word {
        1 => "0".to_owned(),
        2 | 4 => "bad()".to_owned(),
        3 => format!("edge({size})"),
        _ => good.to_owned(),
    }
}

impl Body {
    fn line(&mut self, text: &str) {
        let _ = writeln!(self.lines, "        {text}");
    }

    /// Declares `parts`, with these sizes.
    fn vectors<T: std::fmt::Display>(&mut self, sizes: &[T]) {
        let parts: Vec<String> = sizes
            .iter()
            .map(|size| format!("{{part, {size}}}"))
            .collect();
        self.line("static char part[1 << 20];");
        self.line(&format!(
            "struct iovec parts[{}] = {{{}}};",
            sizes.len().max(1),
            parts.join(", ")
        ));
    }

    fn push(&mut self, word: impl ToString) {
        self.words.push(word.to_string());
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        let value = step.arguments.first().map_or(0, first);
        match step.form.name {
            "fork" => self.line(&format!(
                "fflush(stdout); r = fork(); if (!r) {{ me = {value}; alarm(2); }}"
            )),
            "exit" => self.line(&format!("shared->turn += 1; _exit({value});")),
            "numbers" => self.line("r = 0;"),
            "file" => self.line(&format!(
                "r = v[{}] = memfd_create(\"file\", 0); ftruncate(r, {value});",
                step.number
            )),
            "action" => {
                let what = step.arguments.get(1).map_or(0, first);
                let handler =
                    ["SIG_DFL", "SIG_IGN", "on_signal"].get(usize::try_from(what).unwrap_or(9));
                let handler = handler.ok_or_else(|| step.to_string())?;
                self.line(&format!(
                    "signal({value}, {handler}); siginterrupt({value}, 1); r = 0;"
                ));
            }
            _ if !step.form.library => return Err(step.to_string()),
            _ => self.call(step)?,
        }
        if step.actor > 0 || step.form.name == "fork" {
            // A child must not take the result of its parent's step for its own.
            self.line("if (0) r = 0;");
        }
        Ok(())
    }

    fn call(&mut self, step: &Step) -> Result<(), String> {
        self.line("errno = 0;");
        let pairs: Vec<_> = step.form.arguments.iter().zip(&step.arguments).collect();
        for (index, (kind, argument)) in pairs.iter().enumerate() {
            let size = pairs
                .get(index + 1)
                .map_or(0, |(_, argument)| first(argument));
            self.argument(step, **kind, argument, size)?;
        }
        let words = self.words.join(", ");
        let call = match step.form.number.filter(|_| step.by_number) {
            Some(number) => format!("syscall({number}, {words})"),
            None => format!("{}({words})", step.form.name),
        };
        let keep = if step.form.makes && step.form.name != "fcntl" {
            format!("v[{}] = ", step.number)
        } else {
            String::new()
        };
        self.line(&format!("r = {keep}{call};"));
        if step.form.name == "getsockname" {
            let of = step.arguments.first().map_or(0, first);
            self.line(&format!("if (!r) keep_name({}, &name);", of.min(1099)));
        }
        if step.form.arguments.contains(&Kind::Pair) {
            self.line(&format!(
                "v[{}] = pair[0], v[{}] = pair[1];",
                step.number,
                step.number + SECOND
            ));
        }
        Ok(())
    }

    fn argument(
        &mut self,
        step: &Step,
        kind: Kind,
        argument: &Argument,
        size: i64,
    ) -> Result<(), String> {
        let value = first(argument);
        match kind {
            Kind::Fd => self.push(descriptor(value)),
            Kind::One(_) | Kind::Flags(_) | Kind::Number(_) | Kind::Milliseconds | Kind::Size => {
                self.push(value)
            }
            Kind::In | Kind::Out => {
                self.line("static char bytes[1 << 22];");
                self.push(place(value, "bytes", size));
            }
            Kind::VectorIn | Kind::VectorOut => {
                let sizes = shape_sizes(value).ok_or_else(|| step.to_string())?;
                self.vectors(sizes);
                self.push("parts");
                self.push(sizes.len());
            }
            Kind::MessageIn | Kind::MessageOut => {
                let sizes =
                    shape_sizes(value).filter(|_| at(argument, 1) == 0 && at(argument, 2) == 0);
                let sizes = sizes.ok_or_else(|| step.to_string())?;
                self.vectors(sizes);
                self.line(&format!(
                    "struct msghdr message = {{.msg_iov = parts, .msg_iovlen = {}}};",
                    sizes.len()
                ));
                self.push("&message");
                if kind == Kind::MessageOut {
                    self.looks
                        .push(Look("flags", vec!["message.msg_flags".to_owned()]));
                }
            }
            Kind::MessagesIn | Kind::MessagesOut => {
                self.line("static char part[1 << 20];");
                self.line(&format!(
                    "struct iovec parts = {{part, {}}};",
                    at(argument, 1)
                ));
                self.line("struct mmsghdr messages[8] = {0};");
                self.line("for (int i = 0; i < 8; i++) messages[i].msg_hdr.msg_iov = &parts, messages[i].msg_hdr.msg_iovlen = 1;");
                self.push("messages");
                self.push(value);
            }
            Kind::To => {
                self.line("struct sockaddr_storage to;");
                self.line(&format!(
                    "socklen_t length = address(&to, {value}, {}, {});",
                    at(argument, 1).min(1099),
                    at(argument, 2)
                ));
                let claimed = ["length", "-1", "4", "129", "0", "128"]
                    .get(usize::try_from(at(argument, 3)).unwrap_or(0));
                self.push(match value {
                    3 => "0",
                    4 => "bad()",
                    _ => "(void *)&to",
                });
                self.push(if value == 3 && at(argument, 3) == 0 {
                    "0"
                } else {
                    claimed.unwrap_or(&"length")
                });
            }
            Kind::From => {
                self.line("struct sockaddr_storage name = {0};");
                self.room(value, "(void *)&name", 128);
            }
            Kind::Choice => {
                let option = &OPTIONS[usize::try_from(value).unwrap_or(0) % OPTIONS.len()];
                self.push(option.level);
                self.push(format!("{} /* {} */", option.number, option.name));
            }
            Kind::Answer => {
                if step.form.name == "getrlimit" {
                    self.line("struct rlimit limit;");
                    self.push("&limit");
                    return Ok(());
                }
                self.line("int answer[64] = {0};");
                self.room(
                    value,
                    "answer",
                    if step.to_string().contains("LINGER") {
                        8
                    } else {
                        4
                    },
                );
                self.looks.push(Look("value", vec!["answer[0]".to_owned()]));
            }
            Kind::Value => {
                let (a, b) = (at(argument, 1), at(argument, 2));
                let (text, size) = match value {
                    1 => (format!("int given[2] = {{{a}, {b}}};"), 8),
                    2 => (format!("long given[2] = {{{a}, {b}}};"), 16),
                    5 => ("char given[16] = \"reno\";".to_owned(), 4),
                    _ => (format!("int given = {a};"), 4),
                };
                self.line(&text);
                self.push(place(
                    [0, 0, 0, 1, 2]
                        .get(usize::try_from(value).unwrap_or(0))
                        .copied()
                        .unwrap_or(0),
                    "&given",
                    4,
                ));
                self.push(if at(argument, 3) == 0 {
                    size
                } else {
                    at(argument, 3) - 2
                });
            }
            Kind::Polls => {
                let entries: Vec<String> = argument
                    .chunks(2)
                    .map(|pair| format!("{{{}, {}}}", descriptor(pair[0]), at(&pair.to_vec(), 1)))
                    .collect();
                self.line(&format!(
                    "struct pollfd polls[{}] = {{{}}};",
                    entries.len().max(1),
                    entries.join(", ")
                ));
                self.push("polls");
                self.push(entries.len());
                let fields = (0..entries.len())
                    .map(|index| format!("polls[{index}].revents"))
                    .collect();
                self.looks.push(Look("revents", fields));
            }
            Kind::Sets => {
                self.line("fd_set sets[3]; int most = 0; memset(sets, 0, sizeof sets);");
                let mut used = 0;
                for pair in argument.get(1..).unwrap_or_default().chunks(2) {
                    let (which, fd) = (pair[0], descriptor(at(&pair.to_vec(), 1)));
                    used |= which;
                    for set in (0..3).filter(|set| which >> set & 1 == 1) {
                        self.line(&format!("if ({fd} >= 0) FD_SET({fd}, &sets[{set}]), most = {fd} >= most ? {fd} + 1 : most;"));
                    }
                }
                self.push(format!("most + {value}"));
                for set in 0..3 {
                    self.push(if used >> set & 1 == 1 {
                        format!("&sets[{set}]")
                    } else {
                        "0".to_owned()
                    });
                }
            }
            Kind::Timeval | Kind::Timespec => {
                let second = if kind == Kind::Timeval {
                    1_000_000_i64
                } else {
                    1_000_000_000
                };
                let parts = match value {
                    2 => [0, second / 100],
                    3 => [0, second * 2],
                    5 => [-1, 0],
                    _ => [0, 0],
                };
                self.line(&format!("long time[2] = {{{}, {}}};", parts[0], parts[1]));
                self.push(place(
                    [1, 0, 0, 0, 2, 0]
                        .get(usize::try_from(value).unwrap_or(1))
                        .copied()
                        .unwrap_or(0),
                    "(void *)time",
                    16,
                ));
            }
            Kind::Event => {
                self.line(&format!(
                    "struct epoll_event event = {{.events = {value}u, .data.u64 = {}}};",
                    at(argument, 1)
                ));
                self.push(place(at(argument, 2), "&event", 12));
            }
            Kind::Events => {
                self.line("struct epoll_event events[64];");
                self.push(place(at(argument, 1), "events", 64));
                self.push(value);
                self.looks
                    .push(Look("events", vec!["events[0].events".to_owned()]));
            }
            Kind::Mask | Kind::MaskPair => {
                self.line(&format!("sigset_t mask; sigemptyset(&mask); if ({value} == 2) sigaddset(&mask, SIGUSR1);"));
                let at = place(
                    [1, 0, 0, 0, 2]
                        .get(usize::try_from(value).unwrap_or(0))
                        .copied()
                        .unwrap_or(0),
                    "&mask",
                    8,
                );
                match (step.by_number, kind) {
                    (true, Kind::MaskPair) => {
                        self.line(&format!("long both[2] = {{(long){at}, 8}};"));
                        self.push("both");
                    }
                    (true, _) => {
                        self.push(at);
                        self.push(8);
                    }
                    _ => self.push(at),
                }
            }
            Kind::Request => {
                self.line(&format!("int number = {};", at(argument, 1)));
                self.push(value);
                self.push(place(at(argument, 2), "&number", 4));
                self.looks.push(Look("int", vec!["number".to_owned()]));
            }
            Kind::Command => {
                self.push(value);
                self.push(at(argument, 1));
            }
            Kind::Pair => {
                self.line("int pair[2] = {-1, -1};");
                self.push(if value == 2 { "bad()" } else { "pair" });
            }
            Kind::Offset => match value {
                0 => self.push(0),
                2 => self.push("bad()"),
                _ => self.push(format!("(long[]){{{}}}", at(argument, 1))),
            },
            Kind::Limit => {
                let soft = LIMIT_VALUES[usize::try_from(value).unwrap_or(0) % LIMIT_VALUES.len()];
                let hard = if at(argument, 1) == 0 { 4096 } else { soft };
                self.line(&format!("struct rlimit limit = {{{soft}, {hard}}};"));
                self.push("&limit");
            }
            Kind::Actor => return Err(step.to_string()),
        }
        Ok(())
    }

    fn room(&mut self, word: i64, good: &str, size: i64) {
        let sizes = [size, size, size, 4, -1, 0, 7, i64::from(i32::MAX)];
        let claimed = sizes
            .get(usize::try_from(word).unwrap_or(0))
            .copied()
            .unwrap_or(size);
        self.line(&format!("socklen_t room = {claimed};"));
        self.push(match word {
            1 => "0",
            2 => "bad()",
            _ => good,
        });
        self.push(if word == 1 { "0" } else { "&room" });
    }

    /// The condition that must hold after the step, as over kernel TCP.
    fn expectation(&self, kernel: &str) -> String {
        let text = kernel
            .trim_start_matches("waited ")
            .trim_start_matches("interrupted ");
        let mut words = text.split(' ');
        let result = words.next().unwrap_or("0");
        let mut conditions = Vec::new();
        if result == "-1" {
            let name = words.next().unwrap_or("0");
            conditions.push(format!(
                "r == -1 && errno == {}",
                if name == "errno" {
                    words.next().unwrap_or("0")
                } else {
                    name
                }
            ));
        } else if result.parse::<i64>().is_ok() {
            conditions.push(format!("r == {result}"));
        } else {
            conditions.push("1".to_owned());
        }
        for Look(name, fields) in &self.looks {
            let found = text
                .split(' ')
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
            let Some(values) = found else { continue };
            for (field, value) in fields.iter().zip(values.split(',')) {
                let hexadecimal = matches!(*name, "revents" | "flags" | "events");
                // Of events the value is the reported bits of the only event.
                let value = if *name == "events" && text.starts_with("1 ") {
                    value.rsplit(':').next().unwrap_or("")
                } else {
                    value
                };
                if value
                    .chars()
                    .all(|sign| sign.is_ascii_hexdigit() || sign == '-')
                {
                    conditions.push(format!(
                        "{field} == {}{value}",
                        if hexadecimal { "0x" } else { "" }
                    ));
                }
            }
        }
        conditions.join(" && ")
    }
}
