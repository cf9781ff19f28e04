//! Values that are kept once and known by a number, so that a state is small and what was computed
//! once is only looked up: millions of states are made of a few thousand machines, messages and
//! entries.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Values, each kept once.
#[derive(Debug)]
pub(super) struct Table<T> {
    values: Vec<Arc<T>>,
    numbers: HashMap<Arc<T>, u32>,
}

impl<T: Eq + Hash> Table<T> {
    /// The number of `value`, and whether it is new.
    pub(super) fn put(&mut self, value: T) -> (u32, bool) {
        if let Some(number) = self.numbers.get(&value) {
            return (*number, false);
        }
        let value = Arc::new(value);
        let number = self.values.len() as u32;
        self.values.push(Arc::clone(&value));
        self.numbers.insert(value, number);
        (number, true)
    }

    /// The value with this number.
    pub(super) fn get(&self, number: u32) -> &Arc<T> {
        &self.values[number as usize]
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            numbers: HashMap::new(),
        }
    }
}
