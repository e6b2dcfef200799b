//! Splits text into statements at semicolons that are outside of strings, names and comments.

/// A text's statements, and what is left without a semicolon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Complete statements, without semicolon and surrounding space; none is empty.
    pub(super) statements: Vec<String>,
    /// The rest; empty if there is nothing but space and comments.
    pub(super) rest: String,
    /// Whether the rest ends inside a string or a comment.
    pub(super) is_open: bool,
}

/// Where the scanner is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    Quoted(char),
    Line,
    Block,
}

/// Splits a text.
pub(super) fn split(text: &str) -> Split {
    let mut statements = Vec::new();
    let mut current = String::new();
    // Whether the current statement has anything but space and comments.
    let mut has_code = false;
    let mut inside = Inside::Code;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let next = letters.peek().copied();
        match inside {
            Inside::Code => match letter {
                ';' => {
                    if has_code {
                        statements.push(current.trim().to_owned());
                    }
                    current.clear();
                    has_code = false;
                    continue;
                }
                '\'' | '"' | '`' => {
                    inside = Inside::Quoted(letter);
                    has_code = true;
                }
                '#' => inside = Inside::Line,
                '-' if next == Some('-') && begins_comment(&mut letters) => inside = Inside::Line,
                '/' if next == Some('*') => inside = Inside::Block,
                _ => has_code |= !letter.is_whitespace(),
            },
            Inside::Quoted(quote) => {
                if letter == '\\' && quote != '`' {
                    current.push(letter);
                    current.extend(letters.next());
                    continue;
                }
                if letter == quote {
                    inside = Inside::Code;
                }
            }
            Inside::Line => {
                if letter == '\n' {
                    inside = Inside::Code;
                }
            }
            Inside::Block => {
                if letter == '*' && next == Some('/') {
                    current.push(letter);
                    current.extend(letters.next());
                    inside = Inside::Code;
                    continue;
                }
            }
        }
        current.push(letter);
    }
    let is_open = matches!(inside, Inside::Quoted(_) | Inside::Block);
    let rest = if has_code || is_open { current.trim().to_owned() } else { String::new() };
    Split { statements, rest, is_open }
}

/// After the first `-` of `--`: a comment needs a space, or the end, behind it.
fn begins_comment(letters: &mut std::iter::Peekable<std::str::Chars<'_>>) -> bool {
    letters.clone().nth(1).is_none_or(char::is_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, statements: &[&str], rest: &str, is_open: bool) {
        let split = split(text);
        assert_eq!(split.statements, statements, "{text}");
        assert_eq!((split.rest.as_str(), split.is_open), (rest, is_open), "{text}");
    }

    #[test]
    fn semicolons_end_statements_only_in_code() {
        check("a; b ;c", &["a", "b"], "c", false);
        check("select ';', \";\", `;`;", &["select ';', \";\", `;`"], "", false);
        check("select 'it''s; \\';';", &["select 'it''s; \\';'"], "", false);
        check("a -- ; no\n;", &["a -- ; no"], "", false);
        check("a # ; no\n; b /* ; */;", &["a # ; no", "b /* ; */"], "", false);
        check("select 1--1;", &["select 1--1"], "", false);
        check(";;;", &[], "", false);
        check("-- only a comment\n", &[], "", false);
        check("select 'open;", &[], "select 'open;", true);
        check("/* open ;", &[], "/* open ;", true);
    }
}
