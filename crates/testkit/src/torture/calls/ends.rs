//! On which host the two ends of a connection live, for programs that run between two.

use super::generate::Generator;

impl Generator {
    /// The actors that listen and connect. Where there are two hosts, mostly one on each.
    pub(super) fn two_ends(&mut self) -> (usize, usize) {
        let (server, mut client) = (self.model.actor(), self.model.actor());
        let is_far = |generator: &Self, actor: usize| {
            // A process that is made later lives on the host of its parent.
            let process = generator.model.actors[actor].process;
            generator.far >> generator.home(process) & 1
        };
        for _ in 0..8 {
            if self.far == 0 || is_far(self, server) != is_far(self, client) {
                break;
            }
            client = self.model.actor();
        }
        (server, client)
    }

    /// The process from which another one descends, among those made first.
    fn home(&self, process: usize) -> usize {
        let mut process = process;
        while self.far >> process & 1 == 0 && process > 0 {
            let made = self.steps.iter().find(|step| {
                step.form.name == "fork"
                    && step.arguments.first().and_then(|argument| argument.first())
                        == i64::try_from(process).ok().as_ref()
            });
            let Some(step) = made else { break };
            process = self.model.actors[step.actor].process;
        }
        process
    }
}

#[cfg(test)]
mod tests {
    use crate::calls::generate::program;

    #[test]
    fn most_connections_are_between_the_hosts() {
        let mut between = 0;
        let mut within = 0;
        for number in 0..300 {
            let drawn = program(9, number, true);
            assert_eq!(drawn.steps[0].to_string(), "1 @0 fork(1)");
            let first = drawn
                .steps
                .iter()
                .take_while(|step| step.form.name == "fork");
            let far = 1..=first.count();
            let actor = |name: &str| {
                let step = drawn.steps.iter().find(|step| step.form.name == name);
                step.map(|step| step.actor)
            };
            // The hosts of processes that are made later are not known here.
            let (Some(server), Some(client)) = (actor("listen"), actor("connect")) else {
                continue;
            };
            if far.contains(&server) == far.contains(&client) {
                within += 1;
            } else {
                between += 1;
            }
        }
        assert!(between > 3 * within, "{between} between, {within} within");
    }
}
