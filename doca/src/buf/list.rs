//! Lists of bufs: data in several places that a task takes, or writes, as one sequence.

use std::rc::Rc;

use super::{Appended, Buf};
use crate::error::call;
use crate::{Error, ErrorCode, Result};

impl Buf {
    /// Appends `tail`, and what was appended to it, to the list that begins with this buf: a task with this buf works on
    /// the data, or the room, of all of them in that order.
    ///
    /// It is for good: the list is returned to the inventories as one, when this buf and all handles of appended bufs are
    /// gone. The handles stay useful for aiming the parts elsewhere; while a task with the list is in flight, no part
    /// can be changed. All other functions of a buf, like [`data_len`](Self::data_len), are about that buf alone.
    ///
    /// ```no_run
    /// # use doca::{BufInventory, ErasureCoding, EcMatrix, Mmap};
    /// # fn recover(ec: &ErasureCoding, matrix: &EcMatrix, inventory: &BufInventory, blocks: &Mmap) -> doca::Result<()> {
    /// // What is left of a stripe lies in two places.
    /// let available = inventory.buf_with_data(blocks, 0, 2048)?;
    /// available.append(&inventory.buf_with_data(blocks, 8192, 2048)?)?;
    /// let lost = inventory.buf(blocks, 4096, 2048)?;
    /// let task = ec.recover_task(matrix, &available, &lost, 1)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`ErrorCode::INVALID_VALUE`] when `tail` is part of a list already, or of this one, [`ErrorCode::IN_USE`] when a task with any buf of
    /// the two lists is in flight: it would work on what is appended as well.
    pub fn append(&self, tail: &Buf) -> Result<()> {
        const OPERATION: &str = "doca_buf_chain_list";
        let head = self.head();
        for list in [&head, tail] {
            list.check_idle(OPERATION)?;
            list.living_appended()
                .try_for_each(|buf| buf.check_idle(OPERATION))?;
        }
        if tail.inner.before.get().is_some() || Rc::ptr_eq(&head.inner, &tail.inner) {
            return Err(Error::with_detail(
                OPERATION,
                ErrorCode::INVALID_VALUE,
                "expected a buf that is not part of a list, or begins another one",
            ));
        }
        // SAFETY: both bufs are live, not in flight, and begin two lists.
        unsafe { call!(doca_buf_chain_list(head.as_ptr(), tail.as_ptr())) }?;
        // Of the bufs between the two the handles are gone, and so are their tasks.
        let before = head
            .living_appended()
            .last()
            .unwrap_or_else(|| head.clone());
        let mut appended = head.inner.appended.borrow_mut();
        appended.push(Appended {
            buf: Rc::downgrade(&tail.inner),
            _mmap: tail.inner.mmap.clone(),
            _inventory: Rc::clone(&tail.inner.inventory),
        });
        appended.append(&mut tail.inner.appended.borrow_mut());
        // Not set before: `tail` was not part of a list.
        let _ = tail.inner.before.set(before);
        Ok(())
    }

    /// The bufs after the first of a list that have handles, or tasks, in order.
    fn living_appended(&self) -> impl Iterator<Item = Buf> {
        let appended = self.inner.appended.borrow();
        let living: Vec<_> = appended
            .iter()
            .filter_map(|appended| appended.buf.upgrade())
            .collect();
        living.into_iter().map(|inner| Buf { inner })
    }

    /// The first buf of the list.
    fn head(&self) -> Buf {
        match self.inner.before.get() {
            Some(before) => before.head(),
            None => self.clone(),
        }
    }
}
