//! Dates and times, which are neither numbers nor categories.

/// Whether a field is a date, a time, or both, in digits: `2024-03-01`, `1.3.24`, `10:30`, `2024-03-01T10:30:00.5Z`.
pub(super) fn is_date(field: &str) -> bool {
    let cut = field.find(['T', ' ']).map(|at| (&field[..at], &field[at + 1..]));
    match cut {
        Some((date, time)) => is_day(date) && is_time(time.trim_start()),
        None => is_day(field) || is_time(field),
    }
}

/// Three numbers with the same separator between them.
fn is_day(text: &str) -> bool {
    ['-', '/', '.'].into_iter().any(|separator| {
        let parts: Vec<&str> = text.split(separator).collect();
        parts.len() == 3 && parts.iter().all(|part| is_digits(part, 4))
    })
}

/// Hours and minutes, and perhaps seconds, their fractions and a zone.
fn is_time(text: &str) -> bool {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let zone = text.rfind(['+', '-']).map_or(text, |at| &text[..at]);
    let clock = zone.split_once(['.', ',']).map_or(zone, |(clock, _)| clock);
    let parts: Vec<&str> = clock.split(':').collect();
    (2..=3).contains(&parts.len()) && parts.iter().all(|part| is_digits(part, 2))
}

fn is_digits(text: &str, most: usize) -> bool {
    (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_told_from_words_and_numbers() {
        for date in [
            "2024-03-01",
            "1.3.24",
            "03/01/2024",
            "10:30",
            "10:30:05.25",
            "2024-03-01T10:30:00.5Z",
            "2024-03-01 10:30:00+01:00",
        ] {
            assert!(is_date(date), "{date}");
        }
        for other in
            ["", "1.5", "1.2.3.4", "-", "a-b-c", "10-20", "T", "2024-03-01 late", "12:", "Tuesday", "ä T 1:2"]
        {
            assert!(!is_date(other), "{other}");
        }
    }
}
