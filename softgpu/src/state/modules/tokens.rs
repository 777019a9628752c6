//! The words of PTX.

/// A word of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token<'a> {
    /// A name, an instruction, a register.
    Name(&'a str),
    /// A word that begins with a dot, without the dot.
    Directive(&'a str),
    /// A number as it is written, without its sign.
    Number(&'a str),
    /// A text in quotation marks.
    Text,
    Sign(char),
}

/// A word, and its line from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed<'a> {
    pub(super) token: Token<'a>,
    pub(super) line: usize,
}

/// Splits a text into words. Comments are no words.
pub(super) struct Tokens<'a> {
    rest: &'a str,
    line: usize,
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { rest: text, line: 1 }
    }

    /// Takes the bytes before `end`, which is the border of a character.
    fn take(&mut self, end: usize) -> &'a str {
        let (taken, rest) = self.rest.split_at(end);
        self.line += taken.bytes().filter(|byte| *byte == b'\n').count();
        self.rest = rest;
        taken
    }

    fn skip_blanks(&mut self) {
        loop {
            let text = self.rest;
            let end = if text.starts_with("//") {
                text.find('\n').unwrap_or(text.len())
            } else if text.starts_with("/*") {
                text.find("*/").map_or(text.len(), |end| end + 2)
            } else {
                text.find(|c: char| !c.is_whitespace()).unwrap_or(text.len())
            };
            if end == 0 {
                return;
            }
            self.take(end);
        }
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Placed<'a>;

    fn next(&mut self) -> Option<Placed<'a>> {
        self.skip_blanks();
        let (line, text) = (self.line, self.rest);
        let first = text.chars().next()?;
        let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%');
        let end_after = |start: usize, part: &dyn Fn(char) -> bool| {
            text[start..].find(|c| !part(c)).map_or(text.len(), |end| start + end)
        };
        let token = if first == '"' {
            let end = text[1..].find('"').map_or(text.len(), |end| end + 2);
            self.take(end);
            Token::Text
        } else if first.is_ascii_digit() || first == '.' && text[1..].starts_with(|c: char| c.is_ascii_digit()) {
            let in_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
            let end = end_after(1, &in_number);
            // A sign belongs to a decimal number such as 1.0e+5, but not to 0x1e+5.
            let is_decimal = text[..end]
                .strip_suffix(['e', 'E'])
                .is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'));
            let exponent = text[end..].strip_prefix(['+', '-']).filter(|_| is_decimal);
            let has_exponent = exponent.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
            Token::Number(self.take(if has_exponent { end_after(end + 1, &in_number) } else { end }))
        } else if first == '.' && text[1..].starts_with(in_name) {
            Token::Directive(&self.take(end_after(1, &in_name))[1..])
        } else if in_name(first) {
            Token::Name(self.take(end_after(1, &in_name)))
        } else {
            self.take(first.len_utf8());
            Token::Sign(first)
        };
        Some(Placed { token, line })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_their_kinds_and_their_lines() {
        let text = "/* a\n */ .entry\n$x(%r1) // b\n0x1F; 6.4 \"t \" ld.param.u64";
        let words: Vec<_> = Tokens::new(text).map(|word| (word.token, word.line)).collect();
        let expected = [
            (Token::Directive("entry"), 2),
            (Token::Name("$x"), 3),
            (Token::Sign('('), 3),
            (Token::Name("%r1"), 3),
            (Token::Sign(')'), 3),
            (Token::Number("0x1F"), 4),
            (Token::Sign(';'), 4),
            (Token::Number("6.4"), 4),
            (Token::Text, 4),
            (Token::Name("ld"), 4),
            (Token::Directive("param"), 4),
            (Token::Directive("u64"), 4),
        ];
        assert_eq!(words, expected);
    }

    #[test]
    fn a_sign_belongs_to_the_exponent_of_a_decimal_number_only() {
        let words = |text| Tokens::new(text).map(|word| word.token).collect::<Vec<_>>();
        assert_eq!(words("1.0e+5 2E-3 .5"), [Token::Number("1.0e+5"), Token::Number("2E-3"), Token::Number(".5")]);
        assert_eq!(words("0x1e+5"), [Token::Number("0x1e"), Token::Sign('+'), Token::Number("5")]);
        assert_eq!(words("1e+x"), [Token::Number("1e"), Token::Sign('+'), Token::Name("x")]);
    }

    #[test]
    fn what_does_not_end_ends_with_the_text() {
        assert_eq!(Tokens::new("/* a").count(), 0);
        assert_eq!(Tokens::new("\"a").count(), 1);
        assert_eq!(Tokens::new("é.").map(|word| word.token).collect::<Vec<_>>(), [Token::Sign('é'), Token::Sign('.')]);
    }
}
