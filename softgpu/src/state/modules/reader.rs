//! The words of PTX, one after the other, and the errors that name the wrong one.

use super::image::Refused;
use super::initial;
use super::tokens::{Placed, Token, Tokens};
use cuda_sys::CUresult;
use std::fmt::Display;
use std::ops::Range;

pub(super) type Result<T = ()> = core::result::Result<T, Refused>;

pub(super) struct Reader<'a> {
    words: Vec<Placed<'a>>,
    /// The place of the next word.
    pub(super) at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { words: Tokens::new(text).collect(), at: 0 }
    }

    pub(super) fn peek(&self) -> Option<Token<'a>> {
        self.words.get(self.at).map(|word| word.token)
    }

    pub(super) fn next(&mut self) -> Option<Token<'a>> {
        let token = self.peek();
        self.at += usize::from(token.is_some());
        token
    }

    /// Takes the next word if it is `token`.
    pub(super) fn accept(&mut self, token: Token<'_>) -> bool {
        let is_it = self.peek() == Some(token);
        self.at += usize::from(is_it);
        is_it
    }

    /// The error that something else was expected at the next word.
    pub(super) fn expected<T>(&self, what: impl Display) -> Result<T> {
        let line = self.words.get(self.at).or(self.words.last()).map_or(1, |word| word.line);
        let found = match self.peek() {
            None => "the text ends".to_owned(),
            Some(Token::Name(word) | Token::Number(word)) => format!("found `{word}`"),
            Some(Token::Directive(word)) => format!("found `.{word}`"),
            Some(Token::Text) => "found a text".to_owned(),
            Some(Token::Sign(sign)) => format!("found `{sign}`"),
        };
        let text = format!("softgpu: PTX, line {line}: expected {what}, but {found}");
        Err(Refused::new(CUresult::CUDA_ERROR_INVALID_PTX, text))
    }

    pub(super) fn sign(&mut self, sign: char) -> Result {
        if self.accept(Token::Sign(sign)) { Ok(()) } else { self.expected(format!("`{sign}`")) }
    }

    pub(super) fn name(&mut self) -> Result<&'a str> {
        match self.peek() {
            Some(Token::Name(name)) => {
                self.at += 1;
                Ok(name)
            }
            _ => self.expected("a name"),
        }
    }

    pub(super) fn number(&mut self) -> Result<usize> {
        let number = match self.peek() {
            Some(Token::Number(number)) => initial::integer(number).and_then(|number| usize::try_from(number).ok()),
            _ => None,
        };
        let Some(number) = number else { return self.expected("a number") };
        self.at += 1;
        Ok(number)
    }

    /// Takes words up to a `sign`, with it.
    pub(super) fn skip_past(&mut self, sign: char) -> Result {
        while let Some(token) = self.next() {
            if token == Token::Sign(sign) {
                return Ok(());
            }
        }
        self.expected(format!("`{sign}`"))
    }

    pub(super) fn skip_to_block(&mut self) -> Result {
        while self.peek().is_some_and(|token| token != Token::Sign('{')) {
            self.at += 1;
        }
        if self.peek().is_some() { Ok(()) } else { self.expected("`{`") }
    }

    /// Skips a block. Returns the places of its words.
    pub(super) fn block(&mut self) -> Result<Range<usize>> {
        let start = self.at;
        let mut depth = 0_usize;
        loop {
            match self.next() {
                Some(Token::Sign('{')) => depth += 1,
                Some(Token::Sign('}')) if depth > 0 => depth -= 1,
                Some(_) => {}
                None => return self.expected("`}`"),
            }
            if depth == 0 {
                return Ok(start..self.at);
            }
        }
    }
}
