//! The objects of a pickle: the closed list of classes, and arrays, matrices and dicts taken from a read pickle.

use std::borrow::Cow;
use std::path::Path;

use morphgl_graph_store::Result;

use super::Machine;
use crate::elements::{ElementType, Kind, Parsed};
use crate::files::invalid;
use crate::sparse::SparseRows;

/// The classes and functions a pickle may name, and no others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// `numpy.core.multiarray._reconstruct`: an array whose content follows.
    Reconstruct,
    Ndarray,
    Dtype,
    CsrMatrix,
    Defaultdict,
    List,
    Base,
    /// `copy_reg._reconstructor`: how protocols 0 and 1 make an object of a class.
    Reconstructor,
    /// `_codecs.encode`: how Python 3 writes bytes for Python 2, as Latin-1 text.
    Encode,
}

impl Class {
    pub(crate) fn find(module: &str, name: &str) -> Option<Self> {
        Some(match (module, name) {
            ("numpy.core.multiarray" | "numpy._core.multiarray", "_reconstruct") => Self::Reconstruct,
            ("numpy", "ndarray") => Self::Ndarray,
            ("numpy", "dtype") => Self::Dtype,
            ("scipy.sparse.csr" | "scipy.sparse._csr", "csr_matrix") => Self::CsrMatrix,
            ("collections", "defaultdict") => Self::Defaultdict,
            ("__builtin__" | "builtins", "list") => Self::List,
            ("__builtin__" | "builtins", "object") => Self::Base,
            ("copy_reg" | "copyreg", "_reconstructor") => Self::Reconstructor,
            ("_codecs", "encode") => Self::Encode,
            _ => return None,
        })
    }
}

/// A value on the stack: small ones in place, objects by number, so that aliases share them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Value {
    None,
    Bool(bool),
    Int(i64),
    Float(f64),
    Object(usize),
}

impl Value {
    pub(crate) fn object(self) -> Option<usize> {
        if let Self::Object(i) = self { Some(i) } else { None }
    }
}

#[derive(Debug)]
pub(crate) enum Object<'a> {
    /// A str, unicode or bytes.
    Bytes(Cow<'a, [u8]>),
    Tuple(Vec<Value>),
    List(Vec<Value>),
    Dict(Vec<(Value, Value)>),
    Class(Class),
    Dtype(ElementType),
    Array(Option<Box<ArrayState>>),
    Csr(Option<Value>),
}

/// A numpy array's state from `ndarray.__reduce__`.
#[derive(Debug)]
pub(crate) struct ArrayState {
    shape: Vec<u64>,
    ty: ElementType,
    fortran: bool,
    data: Value,
}

impl<'a> Machine<'a> {
    /// The instance that a call of `callable` with `args` makes; `Err` says why there is none.
    pub(crate) fn construct(&self, callable: Value, args: Value) -> Parsed<Object<'a>> {
        let class = self.class(callable).ok_or("a call of something that is not a class")?;
        let args = self.items(args).ok_or("a call without arguments")?;
        match (class, args) {
            (Class::Reconstruct, [class, ..]) if self.class(*class) == Some(Class::Ndarray) => Ok(Object::Array(None)),
            (Class::Dtype, [name, ..]) => {
                let name = self.bytes(*name).map(String::from_utf8_lossy).ok_or("a dtype without a name")?;
                let ty = ElementType::parse(&name).ok_or_else(|| format!("the dtype {name:?} is refused"))?;
                Ok(Object::Dtype(ty))
            }
            (Class::CsrMatrix, []) => Ok(Object::Csr(None)),
            (Class::Reconstructor, [class, ..]) if self.class(*class) == Some(Class::CsrMatrix) => {
                Ok(Object::Csr(None))
            }
            (Class::Defaultdict, []) => Ok(Object::Dict(vec![])),
            (Class::Defaultdict, [class]) if self.class(*class) == Some(Class::List) => Ok(Object::Dict(vec![])),
            (Class::List, []) => Ok(Object::List(vec![])),
            (Class::Encode, [text, ..]) => {
                let text = self.bytes(*text).and_then(|text| std::str::from_utf8(text).ok());
                let text = text.ok_or("bytes that are not text")?;
                let mut bytes = Vec::with_capacity(text.chars().count());
                for c in text.chars() {
                    bytes.push(u8::try_from(u32::from(c)).map_err(|_| "bytes that are not Latin-1")?);
                }
                Ok(Object::Bytes(bytes.into()))
            }
            (class, _) => Err(format!("a call of {class:?} with arguments it does not take")),
        }
    }

    /// Sets the state of an instance; `Err` says why the state does not fit.
    pub(crate) fn build(&mut self, target: Value, state: Value) -> Parsed<()> {
        let Some(target) = target.object() else { return Err("state for a plain value".into()) };
        let built = match (&self.objects[target], self.items(state)) {
            (Object::Dtype(ty), Some([_, order, ..])) => {
                Object::Dtype(ElementType { big: self.bytes(*order) == Some(b">"), ..*ty })
            }
            (Object::Array(_), Some(&[_, shape, ty, fortran, data])) => {
                let shape = self.items(shape).ok_or("an array without a shape")?;
                let shape = shape.iter().map(|d| if let Value::Int(d) = d { u64::try_from(*d).ok() } else { None });
                let shape = shape.collect::<Option<Vec<_>>>().ok_or("an array with an impossible shape")?;
                let Some(Object::Dtype(ty)) = self.get(ty) else { return Err("an array without a dtype".into()) };
                let fortran = matches!(fortran, Value::Bool(true) | Value::Int(1));
                Object::Array(Some(Box::new(ArrayState { shape, ty: *ty, fortran, data })))
            }
            (Object::Csr(_), None) => Object::Csr(Some(state)),
            _ => return Err("state of an unknown layout".into()),
        };
        self.objects[target] = built;
        Ok(())
    }

    fn get(&self, value: Value) -> Option<&Object<'a>> {
        value.object().map(|i| &self.objects[i])
    }

    fn items(&self, value: Value) -> Option<&[Value]> {
        if let Some(Object::Tuple(items)) = self.get(value) { Some(items) } else { None }
    }

    pub(super) fn bytes(&self, value: Value) -> Option<&[u8]> {
        if let Some(Object::Bytes(bytes)) = self.get(value) { Some(bytes) } else { None }
    }

    fn class(&self, value: Value) -> Option<Class> {
        if let Some(Object::Class(class)) = self.get(value) { Some(*class) } else { None }
    }
}

/// A read pickle.
#[derive(Debug)]
pub(crate) struct Pickle<'a> {
    pub(crate) path: &'a Path,
    /// Bytes of the pickle.
    pub(crate) len: usize,
    pub(crate) objects: Vec<Object<'a>>,
    pub(crate) root: Value,
}

/// A numpy array of a pickle, with as many bytes as its shape needs.
#[derive(Debug)]
pub(crate) struct NumpyArray<'p> {
    pub(crate) shape: Vec<u64>,
    pub(crate) ty: ElementType,
    pub(crate) fortran: bool,
    pub(crate) bytes: &'p [u8],
}

impl Pickle<'_> {
    /// The object that a 0-dimensional object array wraps, or `value` itself.
    pub(crate) fn unwrap_object(&self, value: Value) -> Value {
        let Some(Object::Array(Some(state))) = self.get(value) else { return value };
        match self.get(state.data) {
            Some(Object::List(items)) if state.ty.kind == Kind::Object && items.len() == 1 => items[0],
            _ => value,
        }
    }

    pub(crate) fn array(&self, value: Value, what: &str) -> Result<NumpyArray<'_>> {
        let Some(Object::Array(Some(state))) = self.get(value) else {
            return self.fail(format!("{what} is not a numpy array"));
        };
        let Some(Object::Bytes(bytes)) = self.get(state.data) else {
            return self.fail(format!("{what} is an array of objects"));
        };
        let len = state.shape.iter().try_fold(state.ty.size as u64, |n, &d| n.checked_mul(d));
        if len != Some(bytes.len() as u64) {
            let (shape, len, ty) = (&state.shape, bytes.len(), state.ty.name());
            return self.fail(format!("{what} has shape {shape:?} and {len} bytes of {ty}"));
        }
        Ok(NumpyArray { shape: state.shape.clone(), ty: state.ty, fortran: state.fortran, bytes })
    }

    /// Names and values of a dict of arrays, in its order.
    pub(crate) fn arrays(&self) -> Result<Vec<(String, Value)>> {
        let Some(Object::Dict(entries)) = self.get(self.root) else { return self.fail("it is not a dict of arrays") };
        let named = |&(key, value): &(Value, Value)| match self.get(key) {
            Some(Object::Bytes(name)) => Ok((String::from_utf8_lossy(name).into_owned(), value)),
            _ => self.fail("a key of the dict is not a string"),
        };
        entries.iter().map(named).collect()
    }

    /// Names and values of a dict of whole numbers, in its order.
    pub(crate) fn ints(&self) -> Result<Vec<(String, i64)>> {
        let Some(Object::Dict(entries)) = self.get(self.root) else { return self.fail("it is not a dict of numbers") };
        let named = |&(key, value): &(Value, Value)| match (self.get(key), value) {
            (Some(Object::Bytes(name)), Value::Int(number)) => Ok((String::from_utf8_lossy(name).into_owned(), number)),
            (Some(Object::Bytes(name)), _) => {
                self.fail(format!("{:?} is no whole number", String::from_utf8_lossy(name)))
            }
            _ => self.fail("a key of the dict is not a string"),
        };
        entries.iter().map(named).collect()
    }

    /// The matrix `value`, checked.
    pub(crate) fn csr(&self, value: Value, what: &str) -> Result<SparseRows> {
        let Some(Object::Csr(Some(state))) = self.get(value) else {
            return self.fail(format!("{what} is not a scipy csr_matrix"));
        };
        let Some(Object::Dict(entries)) = self.get(*state) else { return self.fail(format!("{what} has no content")) };
        let is_key =
            |value: &Value, key: &str| matches!(self.get(*value), Some(Object::Bytes(b)) if **b == *key.as_bytes());
        let entry = |key: &str| entries.iter().find(|(k, _)| is_key(k, key)).map(|(_, v)| *v);
        let Some(Object::Tuple(shape)) = entry("_shape").or_else(|| entry("shape")).and_then(|v| self.get(v)) else {
            return self.fail(format!("{what} has no shape"));
        };
        let &[Value::Int(rows), Value::Int(cols)] = shape.as_slice() else {
            return self.fail(format!("{what} is not a matrix of two dimensions"));
        };
        let part = |key: &str| self.array(entry(key).unwrap_or(Value::None), &format!("{what}.{key}"));
        let ints = |key: &str| -> Result<Vec<i64>> {
            let (array, mut out) = (part(key)?, vec![]);
            array.ty.ints(array.bytes, &mut out).or_else(|fault| self.fail(format!("{what}.{key}: {fault}")))?;
            Ok(out)
        };
        let (indptr, indices, mut values) = (ints("indptr")?, ints("indices")?, vec![]);
        let data = part("data")?;
        data.ty.floats(data.bytes, &mut values).or_else(|fault| self.fail(format!("{what}.data: {fault}")))?;
        SparseRows::new([rows, cols], indptr, indices, values).or_else(|fault| self.fail(format!("{what}: {fault}")))
    }

    /// Calls `edge` with each (key, item) of a dict of int lists.
    pub(crate) fn adjacency(
        &self,
        value: Value,
        what: &str,
        mut edge: impl FnMut(i64, i64) -> Result<()>,
    ) -> Result<()> {
        let Some(Object::Dict(entries)) = self.get(value) else { return self.fail(format!("{what} is not a dict")) };
        // Every item takes a byte or more where no two keys share a list.
        let mut left = self.len;
        for (key, items) in entries {
            let (Value::Int(u), Some(Object::List(items))) = (key, self.get(*items)) else {
                return self.fail(format!("{what} is not a dict of lists of ints"));
            };
            let Some(rest) = left.checked_sub(items.len()) else {
                return self.fail(format!("{what} has more items than bytes: keys share their lists"));
            };
            left = rest;
            for item in items {
                let Value::Int(v) = item else { return self.fail(format!("{what} lists something other than ints")) };
                edge(*u, *v)?;
            }
        }
        Ok(())
    }

    fn get(&self, value: Value) -> Option<&Object<'_>> {
        value.object().map(|i| &self.objects[i])
    }

    fn fail<T>(&self, what: impl Into<String>) -> Result<T> {
        invalid(self.path, what, "the file is damaged or something else: download it again")
    }
}
