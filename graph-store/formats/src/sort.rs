//! External sort.
