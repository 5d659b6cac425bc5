"""Things that run a model, behind `foreword.core.ports.Backend`."""
