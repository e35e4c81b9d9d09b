"""`/api/v1`: three lines a verb. Each route is named after the operation its permission is asked for."""

from fastapi import APIRouter

from penstock.server.rest import (
    catalogue,
    checkpoints,
    logs,
    measured,
    recordings,
    runs,
    service,
    steering,
    tokens,
    trail,
)

ROUTERS: tuple[APIRouter, ...] = (
    service.router,
    runs.router,
    steering.router,
    measured.router,
    checkpoints.router,
    recordings.router,
    logs.router,
    trail.router,
    catalogue.router,
    tokens.router,
)
