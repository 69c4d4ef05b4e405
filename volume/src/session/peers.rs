//! The service's consumers, in the order of their creation: the n-th belongs to the n-th worker.

/// Ids of the service's consumers.
#[derive(Debug, Default)]
pub(super) struct Peers {
    ids: Vec<u32>,
}

impl Peers {
    /// Adds a consumer; `false` if it exists already.
    pub(super) fn add(&mut self, id: u32) -> bool {
        let new = !self.ids.contains(&id);
        if new {
            self.ids.push(id);
        }
        new
    }

    /// Removes a consumer; `false` if it is unknown.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let position = self.ids.iter().position(|known| *known == id);
        position.map(|at| self.ids.remove(at)).is_some()
    }

    pub(super) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
