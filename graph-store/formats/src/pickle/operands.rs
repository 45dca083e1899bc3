//! Operands of instructions: numbers, strings and memo keys, read from the pickle's bytes with every length checked.

use std::borrow::Cow;
use std::str::FromStr;

use morphgl_graph_store::{Error, Position, Result};

use super::objects::{Object, Value};
use super::{Machine, text};
use crate::files::DOWNLOAD;

const CUT_SHORT: &str = "the file was cut short: download it again";

impl<'a> Machine<'a> {
    pub(super) fn int(&mut self, op: u8) -> Result<Value> {
        Ok(Value::Int(match op {
            b'K' => self.byte()?.into(),
            b'M' => u16::from_le_bytes(self.array()?).into(),
            b'J' => i32::from_le_bytes(self.array()?).into(),
            b'I' | b'L' => {
                let line = self.line()?;
                match (op, line) {
                    (b'I', "00" | "01") => return Ok(Value::Bool(line == "01")),
                    _ => self.parse(line.trim().trim_end_matches('L'), "an integer of 64 bits")?,
                }
            }
            long => {
                let len = if long == 0x8a { self.byte()?.into() } else { u32::from_le_bytes(self.array()?) as usize };
                let digits = self.take(len)?;
                if len > 8 {
                    return self.fail("an integer of more than 64 bits", DOWNLOAD);
                }
                let negative = digits.last().is_some_and(|&b| b >= 0x80);
                let mut bytes = if negative { [0xff; 8] } else { [0; 8] };
                bytes[..len].copy_from_slice(digits);
                i64::from_le_bytes(bytes)
            }
        }))
    }

    pub(super) fn string(&mut self, op: u8) -> Result<()> {
        if matches!(op, b'S' | b'V') {
            let line = self.raw_line()?;
            let Some(bytes) = text::unescape(line, op == b'S') else {
                return self.fail("a string with a bad escape", DOWNLOAD);
            };
            self.push(Object::Bytes(bytes.into()));
            return Ok(());
        }
        let len = match op {
            b'U' | b'C' | 0x8c => u64::from(self.byte()?),
            b'T' | b'B' | b'X' => u32::from_le_bytes(self.array()?).into(),
            _ => u64::from_le_bytes(self.array()?),
        };
        let bytes = self.take(usize::try_from(len).unwrap_or(usize::MAX))?;
        // Text is kept as its UTF-8 bytes: keys and class names are compared as bytes, and Python 2 has no other strings.
        self.push(Object::Bytes(Cow::Borrowed(bytes)));
        Ok(())
    }

    pub(super) fn memo_key(&mut self) -> Result<u64> {
        Ok(match self.data[self.op] {
            b'p' | b'g' => {
                let line = self.line()?;
                self.parse(line, "a memo number")?
            }
            b'q' | b'h' => self.byte()?.into(),
            b'r' | b'j' => u32::from_le_bytes(self.array()?).into(),
            _ => self.memo.len() as u64, // MEMOIZE
        })
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("take returns as many bytes as requested"))
    }

    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let Some(end) = self.at.checked_add(len).filter(|&end| end <= self.data.len()) else {
            let what = format!("the pickle ends within an instruction that needs {len} more bytes");
            return self.fail(what, CUT_SHORT);
        };
        let bytes = &self.data[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    pub(super) fn line(&mut self) -> Result<&'a str> {
        let line = self.raw_line()?;
        std::str::from_utf8(line).or_else(|_| self.fail("a line that is not text", DOWNLOAD))
    }

    pub(super) fn raw_line(&mut self) -> Result<&'a [u8]> {
        let rest = &self.data[self.at..];
        let Some(len) = rest.iter().position(|&b| b == b'\n') else {
            return self.fail("the pickle ends within a line", CUT_SHORT);
        };
        self.at += len + 1;
        Ok(rest[..len].strip_suffix(b"\r").unwrap_or(&rest[..len]))
    }

    pub(super) fn parse<T: FromStr>(&self, text: &str, what: &str) -> Result<T> {
        text.trim().parse().or_else(|_| self.fail(format!("{text:?} is not {what}"), DOWNLOAD))
    }

    pub(super) fn fail<T>(&self, what: impl Into<String>, cure: &str) -> Result<T> {
        Err(Error::invalid(self.path, Position::Byte(self.op as u64), what, cure))
    }
}
