//! Unpickling by allow-list: pickles of numpy arrays, scipy `csr_matrix` and dicts of int lists, protocols 0 to 4.
//!
//! The pickle language can name any Python callable. Here a name is looked up in [`Class`], a closed list;
//! any other name is an error with its byte offset, and nothing is ever executed.
//! Memory is at most proportional to the pickle's length: lengths are checked against the remaining bytes.

use std::collections::HashMap;
use std::path::Path;

use morphgl_graph_store::Result;

use crate::files::DOWNLOAD;

mod objects;
mod operands;
#[cfg(test)]
mod tests;
mod text;

use objects::{Class, Object};
pub(crate) use objects::{Pickle, Value};

const ALLOWED: &str = "only numpy arrays, csr_matrix, dict and list of ints are read";

const TENSORS: &str =
    "tensors are not read: save numpy arrays, {name: tensor.numpy() for name, tensor in saved.items()}";

/// Reads the pickle that `data` begins with. `path` names it in errors.
pub(crate) fn read<'a>(path: &'a Path, data: &'a [u8]) -> Result<Pickle<'a>> {
    Ok(read_first(path, data)?.0)
}

/// As [`read`], with the number of bytes that the pickle has.
pub(crate) fn read_first<'a>(path: &'a Path, data: &'a [u8]) -> Result<(Pickle<'a>, usize)> {
    let mut machine =
        Machine { path, data, at: 0, op: 0, stack: vec![], marks: vec![], memo: HashMap::new(), objects: vec![] };
    while !machine.step()? {}
    let root = machine.pop()?;
    let Machine { at, objects, .. } = machine;
    Ok((Pickle { path, len: data.len(), objects, root }, at))
}

/// The stack machine of the pickle language.
pub(crate) struct Machine<'a> {
    path: &'a Path,
    data: &'a [u8],
    at: usize,
    /// Offset of the current instruction, for errors.
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
            0x80 => {
                let protocol = self.byte()?;
                if protocol > 4 {
                    let what = format!("pickle protocol {protocol} is newer than 4");
                    return self.fail(what, "save the file with an older protocol");
                }
            }
            0x95 => {
                self.take(8)?; // A frame only says how much to read ahead.
            }
            b'(' => self.marks.push(self.stack.len()),
            b'0' => {
                if self.marks.pop_if(|mark| *mark == self.stack.len()).is_none() {
                    self.pop()?;
                }
            }
            b'1' => drop(self.pop_mark()?),
            b'2' => self.stack.push(self.top()?),
            b'N' => self.stack.push(Value::None),
            0x88 => self.stack.push(Value::Bool(true)),
            0x89 => self.stack.push(Value::Bool(false)),
            op @ (b'K' | b'M' | b'J' | b'I' | b'L' | 0x8a | 0x8b) => {
                let value = self.int(op)?;
                self.stack.push(value);
            }
            b'F' => {
                let line = self.line()?;
                self.stack.push(Value::Float(self.parse(line, "a number")?));
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
                    _ => return self.fail("a class without a name", DOWNLOAD),
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
                    return self.fail(format!("memo {key} was never set"), DOWNLOAD);
                };
                self.stack.push(value);
            }
            op @ (b')' | 0x85 | 0x86 | 0x87 | b't') => {
                let start = match op {
                    b')' => Some(self.stack.len()),
                    b't' => Some(self.mark()?),
                    n => self.stack.len().checked_sub(usize::from(n - 0x84)).filter(|&start| start >= self.floor()),
                };
                let Some(start) = start else { return self.fail("the stack is empty", DOWNLOAD) };
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
                let object = self.construct(callable, args).or_else(|what| self.fail(what, ALLOWED))?;
                self.push(object);
            }
            b'b' => {
                let (state, target) = (self.pop()?, self.top()?);
                self.build(target, state).or_else(|what| self.fail(what, DOWNLOAD))?;
            }
            other => return self.fail(format!("instruction 0x{other:02x} is not of a pickle of arrays"), ALLOWED),
        }
        Ok(false)
    }

    fn global(&mut self, module: &str, name: &str) -> Result<()> {
        let Some(class) = Class::find(module, name) else {
            let class = format!("{module}.{name}");
            let cure = if module.starts_with("torch") { TENSORS } else { ALLOWED };
            return self.fail(format!("the pickle asks for the class {class:?}, which is refused"), cure);
        };
        self.push(Object::Class(class));
        Ok(())
    }

    fn extend_list(&mut self, items: Vec<Value>) -> Result<()> {
        if let Some(i) = self.top()?.object()
            && let Object::List(list) = &mut self.objects[i]
        {
            list.extend(items);
            return Ok(());
        }
        self.fail("items for something that is not a list", DOWNLOAD)
    }

    fn extend_dict(&mut self, items: Vec<Value>) -> Result<()> {
        if let Some(i) = self.top()?.object()
            && let Object::Dict(dict) = &mut self.objects[i]
            && items.len().is_multiple_of(2)
        {
            dict.extend(items.chunks_exact(2).map(|pair| (pair[0], pair[1])));
            return Ok(());
        }
        self.fail("entries for something that is not a dict", DOWNLOAD)
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
            return self.fail("the stack is empty", DOWNLOAD);
        }
        Ok(self.stack[self.stack.len() - 1])
    }

    fn pop(&mut self) -> Result<Value> {
        let top = self.top()?;
        self.stack.pop();
        Ok(top)
    }

    fn mark(&mut self) -> Result<usize> {
        self.marks.pop().map_or_else(|| self.fail("the mark is missing", DOWNLOAD), Ok)
    }

    fn pop_mark(&mut self) -> Result<Vec<Value>> {
        let mark = self.mark()?;
        Ok(self.stack.split_off(mark))
    }

    fn text(&self, value: Value) -> Option<String> {
        self.bytes(value).and_then(|bytes| std::str::from_utf8(bytes).ok()).map(String::from)
    }
}
