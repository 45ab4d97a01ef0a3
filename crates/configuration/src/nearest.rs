//! The known word that a mistyped one is likely to be.

/// The known word with the fewest changed letters, if few enough are.
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = word.to_lowercase().replace('_', "-");
    let (distance, found) = known
        .iter()
        .map(|name| (distance(&plain, name), *name))
        .min()?;
    (distance <= 1 + plain.chars().count() / 4).then_some(found)
}

/// Letters to be put in, left out, changed, or swapped with the next.
fn distance(one: &str, other: &str) -> usize {
    let one: Vec<char> = one.chars().collect();
    let other: Vec<char> = other.chars().collect();
    let width = other.len() + 1;
    // Row r, column c: from the first r letters to the first c.
    let mut rows: Vec<Vec<usize>> = vec![(0..width).collect()];
    for (index, letter) in one.iter().enumerate() {
        let mut row = vec![index + 1];
        for (column, wanted) in other.iter().enumerate() {
            let above = &rows[index];
            let mut best = (above[column] + usize::from(letter != wanted))
                .min(above[column + 1] + 1)
                .min(row[column] + 1);
            let swapped = index > 0
                && column > 0
                && one[index - 1] == *wanted
                && other[column - 1] == *letter;
            if swapped {
                best = best.min(rows[index - 1][column - 1] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows.last()
        .and_then(|row| row.last())
        .copied()
        .unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_errors_are_seen_through() {
        let known = ["name", "addresses", "prefixes", "key-file", "channels"];
        assert_eq!(nearest("adresses", &known), Some("addresses"));
        assert_eq!(nearest("key_file", &known), Some("key-file"));
        assert_eq!(nearest("Name", &known), Some("name"));
        assert_eq!(nearest("perfixes", &known), Some("prefixes"));
        assert_eq!(nearest("password", &known), None);
        assert_eq!(nearest("x", &[]), None);
    }

    #[test]
    fn distances_are_counted_in_letters() {
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("ab", "ba"), 1);
    }
}
