"""Reading OpenAPI documents, and the conventions they must follow."""
