//! Reads the text of a source file: which paths within its crate it names, and which traits it makes and fulfils. Comments, strings and
//! whatever is there for tests only are left out; what stands in macros counts.

/// One word, sign or pair of colons.
type Token = String;

/// What a file says.
#[derive(Debug, Default)]
pub struct File {
    /// Paths that begin with `crate`, `super` or `self`, from the root of the crate, each once per name of a group.
    pub paths: Vec<Vec<String>>,
    /// What `pub use` of the file's own submodules gives out: the name, and the submodule.
    pub given_out: Vec<(String, String)>,
    /// Traits that it defines.
    pub traits: Vec<String>,
    /// Traits that it implements, by their last name.
    pub fulfilled: Vec<String>,
    /// Statics that hold a function of whoever registers it.
    pub registered: Vec<String>,
}

/// Reads the source of the module `module`.
pub fn file(source: &str, module: &[String]) -> File {
    let tokens = without_tests(tokens(source));
    let mut found = File::default();
    // Modules that stand in the file itself, and how many braces are open around each.
    let mut inner: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < tokens.len() {
        let word = tokens[at].as_str();
        let next = tokens.get(at + 1).map_or("", String::as_str);
        match word {
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inner.retain(|(_, outer)| *outer <= depth);
            }
            "mod" if tokens.get(at + 2).is_some_and(|token| token == "{") => {
                inner.push((next.to_owned(), depth + 1));
            }
            "trait" if is_name(next) => found.traits.push(next.to_owned()),
            "impl" => found.fulfilled.extend(fulfilled(&tokens[at + 1..])),
            "static" if holds_function(&tokens[at + 1..]) => found.registered.push(next.to_owned()),
            "use" if at > 0 && inner.is_empty() && is_given_out(&tokens, at) => {
                let mut leaves = Vec::new();
                tree(&tokens, at + 1, &mut Vec::new(), &mut leaves);
                for leaf in leaves {
                    let own = leaf.first().is_some_and(|first| first == "self");
                    let names = &leaf[usize::from(own)..];
                    if let [submodule, .., name] = names
                        && !matches!(submodule.as_str(), "crate" | "super")
                    {
                        found.given_out.push((name.clone(), submodule.clone()));
                    }
                }
            }
            _ => {}
        }
        let begins = matches!(word, "crate" | "super" | "self") && next == "::";
        if begins && (at == 0 || tokens[at - 1] != "::") {
            let mut leaves = Vec::new();
            tree(&tokens, at, &mut Vec::new(), &mut leaves);
            let mut here = module.to_vec();
            here.extend(inner.iter().map(|(name, _)| name.clone()));
            found
                .paths
                .extend(leaves.iter().filter_map(|leaf| absolute(leaf, &here)));
        }
        at += 1;
    }
    found
}

fn is_name(word: &str) -> bool {
    word.starts_with(|sign: char| sign.is_alphabetic() || sign == '_')
}

/// `pub use`, `pub(crate) use`: not what is for the file itself.
fn is_given_out(tokens: &[Token], at: usize) -> bool {
    tokens[at - 1] == "pub"
        || tokens[at - 1] == ")" && tokens[..at].iter().rev().take(6).any(|it| it == "pub")
}

/// The trait of `impl<T> Trait<U> for X`: the name before its own parameters, where a `for` follows before the body.
fn fulfilled(tokens: &[Token]) -> Option<String> {
    let (mut angles, mut name) = (0_usize, None);
    for token in tokens {
        match token.as_str() {
            "<" => angles += 1,
            ">" => angles = angles.saturating_sub(1),
            "for" if angles == 0 => return name,
            "{" | ";" => return None,
            word if angles == 0 && is_name(word) => name = Some(word.to_owned()),
            _ => {}
        }
    }
    None
}

/// Whether the type of a static has a function in it.
fn holds_function(tokens: &[Token]) -> bool {
    let kind = tokens
        .iter()
        .take_while(|token| !matches!(token.as_str(), "=" | ";"));
    kind.into_iter().any(|token| token == "fn")
}

/// The leaves of a path from `at` on: `a::{b, c::d}` has `a::b` and `a::c::d`. Returns where it ends.
fn tree(
    tokens: &[Token],
    mut at: usize,
    before: &mut Vec<String>,
    leaves: &mut Vec<Vec<String>>,
) -> usize {
    let length = before.len();
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while let Some(token) = tokens.get(at) {
                    match token.as_str() {
                        "}" => break,
                        "," => at += 1,
                        _ => at = tree(tokens, at, before, leaves).max(at + 1),
                    }
                }
                before.truncate(length);
                return at + 1;
            }
            Some(word) if is_name(word) || word == "*" => before.push(word.to_owned()),
            _ => break,
        }
        at += 1;
        if tokens.get(at).is_none_or(|token| token != "::") {
            break;
        }
        at += 1;
    }
    leaves.push(before.clone());
    before.truncate(length);
    if tokens.get(at).is_some_and(|token| token == "as") {
        at += 2;
    }
    at
}

/// A path from the root of the crate.
fn absolute(leaf: &[String], here: &[String]) -> Option<Vec<String>> {
    let mut words = leaf.iter().peekable();
    let mut base = match words.next()?.as_str() {
        "crate" => Vec::new(),
        "self" => here.to_vec(),
        _ => here.split_last()?.1.to_vec(),
    };
    while words.next_if(|word| *word == "super").is_some() {
        base.pop()?;
    }
    base.extend(words.cloned());
    Some(base)
}

fn tokens(source: &str) -> Vec<Token> {
    let mut found = Vec::new();
    let signs: Vec<char> = source.chars().collect();
    let mut at = 0;
    while at < signs.len() {
        let rest = &signs[at..];
        at += match rest {
            ['/', '/', ..] => rest.iter().take_while(|sign| **sign != '\n').count(),
            ['/', '*', ..] => {
                let end = rest.windows(2).skip(2).position(|pair| pair == ['*', '/']);
                end.map_or(rest.len(), |end| end + 4)
            }
            ['"', ..] => string(rest),
            ['r', '"' | '#', ..] if raw_string(rest) > 0 => raw_string(rest),
            // A character, and not a lifetime.
            ['\'', '\\', _, ..] => {
                3 + rest[3..].iter().take_while(|sign| **sign != '\'').count() + 1
            }
            ['\'', _, '\'', ..] => 3,
            ['\'', ..] => {
                let word = rest[1..].iter();
                1 + word
                    .take_while(|sign| sign.is_alphanumeric() || **sign == '_')
                    .count()
            }
            [':', ':', ..] => {
                found.push("::".to_owned());
                2
            }
            [sign, ..] if sign.is_alphanumeric() || *sign == '_' => {
                let word: String = rest
                    .iter()
                    .take_while(|sign| sign.is_alphanumeric() || **sign == '_')
                    .collect();
                let length = word.chars().count();
                found.push(word);
                length
            }
            [sign, ..] => {
                if !sign.is_whitespace() {
                    found.push(sign.to_string());
                }
                1
            }
            [] => 1,
        };
    }
    found
}

/// The length of a string that begins here.
fn string(signs: &[char]) -> usize {
    let mut at = 1;
    while at < signs.len() && signs[at] != '"' {
        at += if signs[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// The length of a raw string that begins here, or 0.
fn raw_string(signs: &[char]) -> usize {
    let hashes = signs[1..].iter().take_while(|sign| **sign == '#').count();
    if signs.get(1 + hashes) != Some(&'"') {
        return 0;
    }
    let begin = hashes + 2;
    let ends = |at: usize| {
        signs[at] == '"'
            && signs[at + 1..]
                .iter()
                .take(hashes)
                .filter(|sign| **sign == '#')
                .count()
                == hashes
    };
    let end = (begin..signs.len())
        .find(|at| ends(*at))
        .unwrap_or(signs.len());
    end + 1 + hashes
}

/// Leaves out each item behind `#[cfg(test)]` or `#[cfg(all(test, ...))]`.
fn without_tests(tokens: Vec<Token>) -> Vec<Token> {
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let words: Vec<&str> = tokens[at..].iter().take(7).map(String::as_str).collect();
        let is_test = matches!(words[..], ["#", "[", "cfg", "(", "test", ..])
            || matches!(words[..], ["#", "[", "cfg", "(", "all", "(", "test"]);
        if !is_test {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        // To the end of the item: a semicolon or a closing brace that nothing is open around.
        let (mut open, mut past) = (0_usize, false);
        while at < tokens.len() {
            match tokens[at].as_str() {
                "{" | "(" | "[" => open += 1,
                "}" | ")" | "]" => {
                    open = open.saturating_sub(1);
                    past = open == 0 && tokens[at] == "}";
                }
                ";" => past = open == 0,
                _ => {}
            }
            at += 1;
            if past {
                break;
            }
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(source: &str) -> Vec<String> {
        let module = ["a".to_owned(), "b".to_owned()];
        let found = file(source, &module);
        found.paths.iter().map(|path| path.join("::")).collect()
    }

    #[test]
    fn paths_are_found_wherever_they_stand() {
        assert_eq!(
            said("use crate::x::{Y, z::{self, W}, v};"),
            ["x::Y", "x::z::self", "x::z::W", "x::v"]
        );
        assert_eq!(
            said("use super::c::D; use super::super::e::F;"),
            ["a::c::D", "e::F"]
        );
        assert_eq!(said("fn f() { let x = crate::g::h(1); }"), ["g::h"]);
        assert_eq!(said("format!(\"{}\", crate::i::J)"), ["i::J"]);
        assert_eq!(said("mod m { use super::n::O; }"), ["a::b::n::O"]);
        assert_eq!(
            said("pub(crate) fn f() {} pub(super) fn g() {}"),
            Vec::<String>::new()
        );
    }

    #[test]
    fn comments_strings_and_tests_do_not_count() {
        assert_eq!(
            said("// crate::x\n/* crate::y */ \"crate::z\" r#\"crate::\"w\"#"),
            Vec::<String>::new()
        );
        let tests = "#[cfg(test)] mod tests { use crate::x::Y; fn f() {} } use crate::z::W;";
        assert_eq!(said(tests), ["z::W"]);
        assert_eq!(
            said("#[cfg(test)] use crate::x::Y; use crate::z::W;"),
            ["z::W"]
        );
        assert_eq!(said("'\\'' '\"' crate::x::Y"), ["x::Y"]);
    }

    #[test]
    fn traits_and_what_gives_names_out_are_found() {
        let source = "pub use x::{Y, z::W}; trait T {} impl<A: B> c::T for D<A> {} impl E {} static F: OnceLock<fn(u8)> = OnceLock::new();";
        let found = file(source, &[]);
        let pair = |name: &str| (name.to_owned(), "x".to_owned());
        assert_eq!(found.given_out, [pair("Y"), pair("W")]);
        assert_eq!(found.traits, ["T"]);
        assert_eq!(found.fulfilled, ["T"]);
        assert_eq!(found.registered, ["F"]);
    }
}
