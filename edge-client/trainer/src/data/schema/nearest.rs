//! The known word that a mistyped one is closest to.

/// The closest of `known` by edit distance, if it is close enough to be meant.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // Longer words are not typing mistakes, and would take long.
    let word: Vec<char> = word.to_lowercase().chars().take(65).collect();
    if word.len() > 64 {
        return None;
    }
    let close = known.into_iter().filter(|known| known.len() <= 256).map(|known| {
        let lower: Vec<char> = known.to_lowercase().chars().collect();
        (distance(&word, &lower), known)
    });
    let (distance, known) = close.min_by_key(|(distance, _)| *distance)?;
    (distance <= 1 + word.len() / 3).then_some(known)
}

/// Characters to insert, remove or replace.
fn distance(one: &[char], other: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, a) in one.iter().enumerate() {
        let mut diagonal = at;
        row[0] = at + 1;
        for (column, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

/// ``; did you mean `word`?``, or nothing.
pub fn hint<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or(String::new(), |known| format!("; did you mean `{known}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typing_mistakes_are_recognised() {
        let known = ["setosa", "versicolor", "virginica"];
        assert_eq!(nearest("Setossa", known), Some("setosa"));
        assert_eq!(nearest("versicolour", known), Some("versicolor"));
        assert_eq!(nearest("tulip", known), None);
        assert_eq!(nearest("", known), None);
        assert_eq!(nearest(&"x".repeat(1000), known), None);
        assert_eq!(distance(&['a', 'b'], &[]), 2);
    }
}
