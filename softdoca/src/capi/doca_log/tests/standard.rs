//! The standard back end.

use super::*;
use crate::capi::testing::child;

/// Run again by [`the_standard_back_end_splits_by_severity`] as a process whose streams it looks at.
#[test]
fn standard_child() {
    if std::env::var_os("SOFTDOCA_TEST_STANDARD").is_none() {
        return;
    }
    // SAFETY: nothing to get wrong.
    unsafe {
        assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
        assert_eq!(doca_log_backend_create_standard(), DOCA_SUCCESS);
        for level in [30, 50, 60] {
            say(level, &format!("standard-a-{level}"));
        }
        doca_log_level_set_global_lower_limit(60);
        for level in [40, 60] {
            say(level, &format!("standard-b-{level}"));
        }
        doca_log_level_set_global_lower_limit(30);
        for level in [30, 40, 50] {
            say(level, &format!("standard-c-{level}"));
        }
    }
}

#[test]
fn the_standard_back_end_splits_by_severity() {
    let test = "capi::doca_log::tests::standard::standard_child";
    let output = child(test, &[("SOFTDOCA_TEST_STANDARD", "1")]);
    let marks = |text: &[u8]| -> Vec<String> {
        let text = String::from_utf8_lossy(text).into_owned();
        let of_line = |line: &str| line.split(' ').next_back().unwrap_or_default().to_owned();
        text.lines()
            .map(of_line)
            .filter(|mark| mark.starts_with("standard-"))
            .collect()
    };
    assert_eq!(marks(&output.stdout), ["standard-a-50", "standard-b-60"]);
    assert_eq!(
        marks(&output.stderr),
        ["standard-a-30", "standard-b-40", "standard-c-30"]
    );
}
