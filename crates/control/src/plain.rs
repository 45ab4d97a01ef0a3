//! Sentences for people.

/// A sentence without the numbers of errors that the standard library adds: ` (os error 2)`.
#[must_use]
pub fn plain(sentence: &str) -> String {
    const MARK: &str = " (os error ";
    let mut parts = sentence.split(MARK);
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(')') {
            Some((number, rest)) if number.parse::<i32>().is_ok() => text.push_str(rest),
            _ => text = text + MARK + part,
        }
    }
    text
}

#[test]
fn numbers_of_errors_are_left_out() {
    let sentence = "a cannot be read (No such file (os error 2)); b (os error 13)";
    assert_eq!(plain(sentence), "a cannot be read (No such file); b");
    assert_eq!(plain("an (os error in words)"), "an (os error in words)");
}
