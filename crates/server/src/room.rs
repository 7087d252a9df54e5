//! Rooms of bounded size, and how full they are: what has no room is refused, and operators see it coming.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places. Clones are the same room.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    places: Arc<Semaphore>,
    most: usize,
}

/// A place that is taken; dropping it leaves the room.
pub(crate) type Place = OwnedSemaphorePermit;

impl Room {
    pub(crate) fn new(most: usize) -> Self {
        Self { places: Arc::new(Semaphore::new(most)), most }
    }

    /// A place, if there is one now.
    pub(crate) fn enter(&self) -> Option<Place> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The part that is taken: 0 for an empty room, 1 for a full one. A room without any place is full.
    pub(crate) fn taken(&self) -> f64 {
        match self.most {
            0 => 1.0,
            most => 1.0 - self.places.available_permits() as f64 / most as f64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_as_full_as_its_places_are_taken() {
        let room = Room::new(4);
        assert!(room.taken() < f64::EPSILON);
        let places: Vec<_> = (0..4).map_while(|_| room.enter()).collect();
        assert_eq!(places.len(), 4);
        assert!(room.enter().is_none() && (room.taken() - 1.0).abs() < f64::EPSILON);
        drop(places);
        assert!(room.enter().is_some() && (room.taken()).abs() < f64::EPSILON);
        assert!(Room::new(0).enter().is_none() && (Room::new(0).taken() - 1.0).abs() < f64::EPSILON);
    }
}
