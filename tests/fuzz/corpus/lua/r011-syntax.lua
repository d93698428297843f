return }
