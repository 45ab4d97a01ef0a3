//! Commands: each connects, sends one request, and reads the answer.

use super::answers::{Answer, Work};
use super::{BATCH, Daemon, accept, peer_credentials};
use crate::admin::Step;
use crate::watch::{Subject, WatchEvent};
use netchannel_control::types::Request;
use std::time::Instant;

impl Daemon {
    pub(super) fn accept_commands(&mut self) {
        for _ in 0..BATCH {
            let Some(socket) = accept(&self.bound.control, &mut self.spare) else {
                return;
            };
            let Some((user, _)) = peer_credentials(&socket) else {
                continue;
            };
            let now = Instant::now();
            let number = self.commands.open(socket, user, now);
            let added = self
                .commands
                .get(number)
                .map(|command| self.watch.add(&command.socket, Subject::Command(number)));
            if !matches!(added, Some(Ok(()))) {
                self.commands.close(number);
            }
        }
    }

    pub(super) fn on_command(&mut self, number: u32, event: WatchEvent) {
        let Some(command) = self.commands.get(number) else {
            return;
        };
        let user = command.user;
        let mut step = if event.writable {
            command.on_writable(Some(Instant::now()))
        } else if event.readable {
            command.on_readable()
        } else {
            return;
        };
        if let Step::Answer(request) = step {
            // Who asks that is about to execute a program.
            if matches!(request, Request::Hello)
                && let Some(peer) = peer_credentials(&command.socket)
            {
                self.await_program(peer);
            }
            let answer = self.respond(request, user);
            let Some(command) = self.commands.get(number) else {
                return;
            };
            step = match answer {
                Answer::Now(response) => command.answer(&response),
                Answer::Long(more, begun) => {
                    command.begin(more, begun);
                    self.list(number);
                    Step::AwaitRoom
                }
            };
        }
        self.on_step(number, step);
    }

    /// Executes the next step of a command.
    pub(super) fn on_step(&mut self, number: u32, step: Step) {
        match step {
            Step::AwaitRequest | Step::Answer(_) => {}
            Step::GoOn => self.list(number),
            Step::Close => self.commands.close(number),
            Step::AwaitRoom => {
                let waits = self.commands.get(number).is_some_and(|command| {
                    let subject = Subject::Command(number);
                    self.watch.await_room(&command.socket, subject).is_ok()
                });
                if !waits {
                    self.commands.close(number);
                }
            }
        }
    }

    /// Puts a command into the list of answers to continue.
    fn list(&mut self, number: u32) {
        if let Some(command) = self.commands.get(number)
            && !std::mem::replace(&mut command.is_listed, true)
        {
            self.works.push_back(Work::Command(number));
        }
    }
}
