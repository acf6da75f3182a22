//! What parameters of strategies must hold; the errors name the key.

/// A parameter that must be finite and not negative.
pub fn not_negative(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value >= 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be 0 or more, not {value}"))
    }
}

/// A parameter that must be finite and above 0.
pub fn positive(key: &str, value: f64) -> Result<f64, String> {
    if value.is_finite() && value > 0.0 {
        Ok(value)
    } else {
        Err(format!("`{key}` must be above 0, not {value}"))
    }
}

/// A parameter that is a share.
pub fn share(key: &str, value: f64) -> Result<f64, String> {
    if (0.0..=1.0).contains(&value) {
        Ok(value)
    } else {
        Err(format!("`{key}` must lie in [0, 1], not {value}"))
    }
}
