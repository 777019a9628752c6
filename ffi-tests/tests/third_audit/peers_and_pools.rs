//! Access between devices, rings of staging, and pools that grow.
