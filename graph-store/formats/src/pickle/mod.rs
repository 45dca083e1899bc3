//! Unpickling by allow-list: pickles of numpy arrays, scipy `csr_matrix` and dicts of int lists, protocols 0 to 4.
//!
//! The pickle language can name any Python callable. Here a name is looked up in [`Class`], a closed list,
//! and anything else ends the reading with the name and its byte offset; nothing is ever executed.
//! Memory is at most proportional to the pickle's length: lengths are checked against the bytes that are there.

use std::collections::HashMap;
use std::path::Path;

use morphgl_graph_store::Result;

mod objects;
mod operands;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use objects::Pickle;
use objects::{Class, Object, Value};

const CURE: &str = "download the file again";

/// Reads the pickle that `data` begins with. `path` names it in errors.
pub(crate) fn read<'a>(path: &'a Path, data: &'a [u8]) -> Result<Pickle<'a>> {
    let mut machine =
        Machine { path, data, at: 0, op: 0, stack: vec![], marks: vec![], memo: HashMap::new(), objects: vec![] };
    while !machine.step()? {}
    let root = machine.pop()?;
    Ok(Pickle { path, objects: machine.objects, root })
}

/// The stack machine of the pickle language.
pub(crate) struct Machine<'a> {
    path: &'a Path,
    data: &'a [u8],
    at: usize,
    /// Offset of the instruction under way, for errors.
    op: usize,
    stack: Vec<Value>,
    marks: Vec<usize>,
    memo: HashMap<u64, Value>,
    pub(crate) objects: Vec<Object<'a>>,
}

impl<'a> Machine<'a> {
    /// Executes one instruction; true at the end of the pickle.
    fn step(&mut self) -> Result<bool> {
        self.op = self.at;
        match self.byte()? {
            b'.' => return Ok(true),
            0x80 => match self.byte()? {
                0..=4 => {}
                newer => {
                    return self.fail(
                        format!("pickle protocol {newer} is newer than 4"),
                        "save the file with an older protocol",
                    );
                }
            },
            0x95 => {
                self.take(8)?; // A frame only says how much to read ahead.
            }
            b'(' => self.marks.push(self.stack.len()),
            b'0' => match self.marks.last() {
                Some(&mark) if mark == self.stack.len() => {
                    self.marks.pop();
                }
                _ => {
                    self.pop()?;
                }
            },
            b'1' => {
                self.pop_mark()?;
            }
            b'2' => {
                let top = self.top()?;
                self.stack.push(top);
            }
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            op @ (b'K' | b'M' | b'J' | b'I' | b'L' | 0x8a | 0x8b) => {
                let value = self.int(op)?;
                self.stack.push(value);
            }
            b'F' => {
                let line = self.line()?;
                let Ok(value) = line.trim().parse() else {
                    return self.fail(format!("{line:?} is not a number"), CURE);
                };
                self.stack.push(Value::Float(value));
            }
            b'G' => {
                let bytes = self.array()?;
                self.stack.push(Value::Float(f64::from_be_bytes(bytes)));
            }
            op @ (b'U' | b'C' | b'T' | b'B' | 0x8e | b'S' | b'X' | 0x8c | 0x8d | b'V') => self.string(op)?,
            b'c' => {
                let (module, name) = (self.line()?, self.line()?);
                self.global(module, name)?;
            }
            0x93 => {
                let (name, module) = (self.pop()?, self.pop()?);
                match (self.text(module), self.text(name)) {
                    (Some(module), Some(name)) => self.global(&module, &name)?,
                    _ => return self.fail("a class without a name", CURE),
                }
            }
            b'p' | b'q' | b'r' | 0x94 => {
                let key = self.memo_key()?;
                let top = self.top()?;
                self.memo.insert(key, top);
            }
            b'g' | b'h' | b'j' => {
                let key = self.memo_key()?;
                let Some(&value) = self.memo.get(&key) else {
                    return self.fail(format!("memo {key} was never set"), CURE);
                };
                self.stack.push(value);
            }
            op @ (b')' | 0x85 | 0x86 | 0x87 | b't') => {
                let start = match op {
                    b')' => self.stack.len(),
                    b't' => self.mark()?,
                    n => match self.stack.len().checked_sub(usize::from(n - 0x84)) {
                        Some(start) if start >= self.floor() => start,
                        _ => return self.fail("the stack is empty", CURE),
                    },
                };
                let items = self.stack.split_off(start);
                self.push(Object::Tuple(items));
            }
            b']' => self.push(Object::List(vec![])),
            b'l' => {
                let items = self.pop_mark()?;
                self.push(Object::List(items));
            }
            b'}' => self.push(Object::Dict(vec![])),
            b'd' => {
                let items = self.pop_mark()?;
                self.push(Object::Dict(vec![]));
                self.extend_dict(items)?;
            }
            b'a' => {
                let item = self.pop()?;
                self.extend_list(vec![item])?;
            }
            b'e' => {
                let items = self.pop_mark()?;
                self.extend_list(items)?;
            }
            b's' => {
                let (value, key) = (self.pop()?, self.pop()?);
                self.extend_dict(vec![key, value])?;
            }
            b'u' => {
                let items = self.pop_mark()?;
                self.extend_dict(items)?;
            }
            b'R' | 0x81 => {
                let (args, callable) = (self.pop()?, self.pop()?);
                let object = self
                    .construct(callable, args)
                    .or_else(|what| self.fail(what, "only numpy arrays, csr_matrix, dict and list of ints are read"))?;
                self.push(object);
            }
            b'b' => {
                let (state, target) = (self.pop()?, self.top()?);
                if let Err(what) = self.build(target, state) {
                    return self.fail(what, CURE);
                }
            }
            other => {
                return self.fail(
                    format!("instruction 0x{other:02x} is not of a pickle of arrays"),
                    "only numpy arrays, csr_matrix, dict and list of ints are read",
                );
            }
        }
        Ok(false)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        match Class::find(module, name) {
            Some(class) => self.push(Object::Class(class)),
            None => {
                return self.fail(
                    format!("the pickle asks for the class {:?}, which is refused", format!("{module}.{name}")),
                    "only numpy arrays, csr_matrix, dict and list of ints are read",
                );
            }
        }
        Ok(())
    }

    fn extend_list(&mut self, items: Vec<Value>) -> Result<()> {
        let target = self.top()?;
        match target.object().map(|i| &mut self.objects[i]) {
            Some(Object::List(list)) => list.extend(items),
            _ => return self.fail("items for something that is not a list", CURE),
        }
        Ok(())
    }

    fn extend_dict(&mut self, items: Vec<Value>) -> Result<()> {
        let target = self.top()?;
        match target.object().map(|i| &mut self.objects[i]) {
            Some(Object::Dict(dict)) if items.len().is_multiple_of(2) => {
                dict.extend(items.chunks_exact(2).map(|p| (p[0], p[1])))
            }
            _ => return self.fail("entries for something that is not a dict", CURE),
        }
        Ok(())
    }

    fn push(&mut self, object: Object<'a>) {
        self.stack.push(Value::Object(self.objects.len()));
        self.objects.push(object);
    }

    /// Nothing below the topmost mark may be popped.
    fn floor(&self) -> usize {
        self.marks.last().copied().unwrap_or(0)
    }

    fn top(&self) -> Result<Value> {
        if self.stack.len() <= self.floor() {
            return self.fail("the stack is empty", CURE);
        }
        Ok(self.stack[self.stack.len() - 1])
    }

    fn pop(&mut self) -> Result<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().map_or_else(|| self.fail("the mark is missing", CURE), Ok)
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>> {
        let mark = self.mark()?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&self, value: Value) -> Option<String> {
        match value.object().map(|i| &self.objects[i]) {
            Some(Object::Bytes(bytes)) => std::str::from_utf8(bytes).ok().map(String::from),
            _ => None,
        }
    }
}
