//! Comments in JSON.

/// The text with spaces for comments, from `//` to the end of the line and between `/*` and `*/`: what a parser says of
/// lines and columns stays true. A comment that does not end is left for the parser to refuse.
pub(super) fn blanked(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let len = if from.starts_with('"') {
            let len = string_len(from);
            out.push_str(&from[..len]);
            len
        } else {
            let len = comment_len(from);
            match len {
                None => out.push('/'),
                Some(len) => {
                    let blank = |c: char| if c == '\n' { '\n' } else { ' ' };
                    out.extend(from[..len].chars().map(blank));
                }
            }
            len.unwrap_or(1)
        };
        rest = &from[len..];
    }
    out.push_str(rest);
    out
}

/// Bytes of the string that the text begins with, with its quotes; all of the text when it does not end.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Bytes of the comment that the text begins with, if it does.
fn comment_len(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        Some(text.find('\n').unwrap_or(text.len()))
    } else {
        let inside = text.strip_prefix("/*")?;
        Some(inside.find("*/")? + 4)
    }
}

#[cfg(test)]
mod tests {
    use super::blanked;

    #[test]
    fn comments_go_and_strings_and_lines_stay() {
        let text = "/* a \"\n */{ // one \"x\"\n\"a//b\": \"c\\\"//\", /* // */ \"d\": \"/* e */\"/***/}// end";
        let clean = blanked(text);
        assert_eq!(clean.len(), text.len());
        assert_eq!(clean.lines().count(), text.lines().count());
        let value: serde_json::Value = serde_json::from_str(&clean).unwrap();
        assert_eq!(value, serde_json::json!({"a//b": "c\"//", "d": "/* e */"}));
    }

    #[test]
    fn what_does_not_end_is_no_json() {
        for open in ["{} /* never closed", "{} /*/", "{} /", "{\"a", "{\"a\\\""] {
            serde_json::from_str::<serde_json::Value>(&blanked(open)).expect_err(open);
        }
    }
}
