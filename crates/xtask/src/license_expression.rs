//! SPDX licence expressions, as far as crates use them: is one allowed, given the licences that are?
//!
//! ```text
//!   "MIT OR (Apache-2.0 WITH LLVM-exception AND BSD-3-Clause)" ──> tokens ──> any of / all of ──> yes or no
//! ```

/// Whether the expression can be satisfied with allowed licences only. What cannot be parsed is not allowed.
pub fn is_allowed(expression: &str, allowed: &[String]) -> bool {
    // A slash is how crates wrote OR before SPDX.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let mut parser = Parser {
        tokens: spaced.split_whitespace().collect(),
        position: 0,
        allowed,
    };
    parser
        .any_of()
        .is_some_and(|satisfied| satisfied && parser.position == parser.tokens.len())
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    position: usize,
    allowed: &'a [String],
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.position).copied()
    }

    fn take(&mut self, token: &str) -> bool {
        let found = self.peek() == Some(token);
        self.position += usize::from(found);
        found
    }

    fn any_of(&mut self) -> Option<bool> {
        let mut satisfied = self.all_of()?;
        while self.take("OR") {
            satisfied |= self.all_of()?;
        }
        Some(satisfied)
    }

    fn all_of(&mut self) -> Option<bool> {
        let mut satisfied = self.one()?;
        while self.take("AND") {
            satisfied &= self.one()?;
        }
        Some(satisfied)
    }

    fn one(&mut self) -> Option<bool> {
        if self.take("(") {
            let satisfied = self.any_of()?;
            return self.take(")").then_some(satisfied);
        }
        let mut licence = self.name()?.to_owned();
        if self.take("WITH") {
            licence = format!("{licence} WITH {}", self.name()?);
        }
        Some(self.allowed.contains(&licence))
    }

    fn name(&mut self) -> Option<&'a str> {
        let name = self
            .peek()
            .filter(|token| !["(", ")", "AND", "OR", "WITH"].contains(token))?;
        self.position += 1;
        Some(name)
    }
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    fn check(expression: &str) -> bool {
        let allowed = [
            "MIT",
            "Apache-2.0",
            "Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        is_allowed(expression, &allowed.map(str::to_owned))
    }

    #[test]
    fn accepts_what_can_be_satisfied() {
        for expression in [
            "MIT",
            "MIT/GPL-3.0",
            "MIT OR GPL-3.0-only",
            "GPL-3.0-only OR Apache-2.0",
            "(MIT OR Apache-2.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-2.0",
            "GPL-2.0 AND BSD-4-Clause OR MIT",
        ] {
            assert!(check(expression), "{expression}");
        }
    }

    #[test]
    fn refuses_the_rest() {
        for expression in [
            "",
            "GPL-3.0-only",
            "MIT AND GPL-3.0-only",
            "(MIT OR Apache-2.0) AND GPL-3.0-only",
            "MIT WITH Classpath-exception-2.0",
            "MIT OR",
            "(MIT",
            "MIT)",
            "MIT Apache-2.0",
            "AND MIT",
        ] {
            assert!(!check(expression), "{expression}");
        }
    }
}
