//! Numbers as text.

/// Returns 1234567 as `1,234,567`.
pub(crate) fn thousands(n: u64) -> String {
    let digits = n.to_string();
    let mut grouped = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Returns 0.00844 as `0.844 %`, and 0.218 as `21.8 %`.
pub(crate) fn percent(rate: f64) -> String {
    let digits = if rate < 0.1 { 3 } else { 1 };
    format!("{:.digits$} %", rate * 100.0)
}
