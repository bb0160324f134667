use_resources = None
