//! Commands connect, ask one thing, and read the answer.

use super::{Daemon, accept, credentials};
use crate::admin::Step;
use crate::watch::{Happening, Subject};
use std::time::Instant;

impl Daemon {
    pub(super) fn accept_commands(&mut self) {
        while let Some(socket) = accept(&self.bound.control, &mut self.spare) {
            let Some(credentials) = credentials(&socket) else {
                continue;
            };
            let now = Instant::now();
            let number = self.commands.open(socket, credentials.user, now);
            let added = self
                .commands
                .get(number)
                .map(|command| self.watch.add(&command.socket, Subject::Command(number)));
            if !matches!(added, Some(Ok(()))) {
                self.commands.close(number);
            }
        }
    }

    pub(super) fn on_command(&mut self, number: u32, happening: Happening) {
        let Some(command) = self.commands.get(number) else {
            return;
        };
        let user = command.user;
        let mut step = if happening.writable {
            command.on_writable(Some(Instant::now()))
        } else if happening.readable {
            command.on_readable()
        } else {
            return;
        };
        if let Step::Answer(request) = step {
            let response = self.respond(request, user);
            let Some(command) = self.commands.get(number) else {
                return;
            };
            step = command.answer(&response);
        }
        match step {
            Step::AwaitRequest | Step::Answer(_) => {}
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
}
